/* From a problem line to a result with the C interface, with every status looked at. */
#include <convnorm/convnorm.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void expect_ok(convnorm_status status) {
  if (status == CONVNORM_OK) return;
  fprintf(stderr, "%s: %s\n", convnorm_status_string(status), convnorm_last_error());
  exit(1);
}

int main(void) {
  /* One sample, one channel, five positions; a kernel of one tap leaves x as it is, so only the norm acts. */
  convnorm_problem problem;
  expect_ok(convnorm_problem_parse("n=1,c=1,l=5,o=1,k=1,g=1,affine=0", &problem));
  const float x[] = {1, 2, 3, 4, 5};
  const float w[] = {1};
  float y[5];

  convnorm_plan* plan = NULL;
  expect_ok(convnorm_plan_create(&problem, NULL, &plan));
  printf("path %s on %s\n", convnorm_plan_path(plan), convnorm_plan_target(plan));

  const size_t packed_size = convnorm_plan_packed_size(plan);
  const size_t workspace_size = convnorm_plan_workspace_size(plan);
  void* packed = malloc(packed_size);
  void* workspace = malloc(workspace_size);
  expect_ok(convnorm_pack_weight(plan, w, packed, packed_size, NULL));

  const convnorm_tensors tensors = {.x = x, .packed_weight = packed, .y = y};
  expect_ok(convnorm_execute(plan, &tensors, workspace, workspace_size, NULL));

  /* The biased variance of 1..5 is 2, so y is (x - 3) / sqrt(2 + eps). */
  int wrong = 0;
  for (int i = 0; i < 5; ++i) {
    const double expected = (x[i] - 3.0) / sqrt(2.0 + problem.eps);
    printf("y[%d] = %9.5f\n", i, y[i]);
    wrong += fabs(y[i] - expected) > 1e-5;
  }

  free(workspace);
  free(packed);
  convnorm_plan_destroy(plan);
  return wrong != 0;
}
