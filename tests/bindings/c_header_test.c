/* convnorm.h must compile alone as C11, and be usable from it. */
#include <convnorm/convnorm.h>

int convnorm_test_from_c(void);

int convnorm_test_from_c(void) {
  convnorm_problem problem;
  convnorm_problem_init(&problem);
  problem.n = 1;
  problem.c = 2;
  problem.l = 8;
  problem.o = 4;
  problem.k = 3;
  problem.groups = 2;
  return convnorm_problem_validate(&problem) == CONVNORM_OK && convnorm_problem_output_length(&problem) == 6;
}
