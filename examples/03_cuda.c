/* The operator on a GPU: device memory, one stream, a captured graph, every status looked at. The CPU's result of the same
 * problem is what it is held against. Ends with 77, a skipped test, where there is no GPU. */
#include <convnorm/convnorm.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 4, C = 32, L = 100, O = 64, K = 3, X = N * C * L, W = O * C * K, Y = N * O * L, SKIPPED = 77 };

static void expect_ok(convnorm_status status) {
  if (status == CONVNORM_OK) return;
  fprintf(stderr, "%s: %s\n", convnorm_status_string(status), convnorm_last_error());
  exit(1);
}

static void expect_cuda(cudaError_t result) {
  if (result == cudaSuccess) return;
  fprintf(stderr, "%s: %s\n", cudaGetErrorName(result), cudaGetErrorString(result));
  exit(1);
}

/* Device memory, with what the host has at `from` unless that is null. */
static void* on_device(const void* from, size_t bytes) {
  void* memory = NULL;
  expect_cuda(cudaMalloc(&memory, bytes));
  if (from != NULL) expect_cuda(cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice));
  return memory;
}

static float host_x[X], host_w[W], host_bias[O], host_gamma[O], host_beta[O], host_y[Y], expected[Y];

static void compute_on_cpu(const convnorm_problem* problem) {
  convnorm_plan* plan = NULL;
  expect_ok(convnorm_plan_create(problem, NULL, &plan));
  void* packed = malloc(convnorm_plan_packed_size(plan));
  void* workspace = malloc(convnorm_plan_workspace_size(plan));
  expect_ok(convnorm_pack_weight(plan, host_w, packed, convnorm_plan_packed_size(plan), NULL));
  const convnorm_tensors tensors = {.x = host_x,
                                    .packed_weight = packed,
                                    .bias = host_bias,
                                    .gamma = host_gamma,
                                    .beta = host_beta,
                                    .y = expected};
  expect_ok(convnorm_execute(plan, &tensors, workspace, convnorm_plan_workspace_size(plan), NULL));
  free(workspace);
  free(packed);
  convnorm_plan_destroy(plan);
}

/* 1 if host_y is not what the CPU computes from host_x. */
static int differs(const convnorm_problem* problem, const char* what) {
  compute_on_cpu(problem);
  double worst = 0;
  for (int i = 0; i < Y; ++i) worst = fmax(worst, fabs((double)host_y[i] - expected[i]));
  printf("%s: largest difference from the CPU %.1e\n", what, worst);
  return !(worst < 1e-3);
}

int main(void) {
  for (int i = 0; i < X; ++i) host_x[i] = cosf(0.21f * (float)i);
  for (int i = 0; i < W; ++i) host_w[i] = sinf(0.37f * (float)i);
  for (int i = 0; i < O; ++i) host_bias[i] = 0.5f, host_gamma[i] = 1.0f, host_beta[i] = 0.1f;

  convnorm_problem problem;
  expect_ok(convnorm_problem_parse("n=4,c=32,l=100,o=64,k=3,p=1,g=8,bias=1,post=silu", &problem));
  /* For the device that is current: cudaSetDevice, or CUDA_VISIBLE_DEVICES in the environment, chooses one of several. */
  const convnorm_plan_options options = {.device = CONVNORM_CUDA};
  convnorm_plan* plan = NULL;
  const convnorm_status status = convnorm_plan_create(&problem, &options, &plan);
  if (status == CONVNORM_NO_DEVICE) {
    printf("skipped: %s\n", convnorm_last_error());
    return SKIPPED;
  }
  expect_ok(status);
  printf("path %s on %s\n", convnorm_plan_path(plan), convnorm_plan_target(plan));

  void* x = on_device(host_x, sizeof host_x);
  void* w = on_device(host_w, sizeof host_w);
  void* bias = on_device(host_bias, sizeof host_bias);
  void* gamma = on_device(host_gamma, sizeof host_gamma);
  void* beta = on_device(host_beta, sizeof host_beta);
  void* y = on_device(NULL, sizeof host_y);

  cudaStream_t stream = NULL;
  expect_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const convnorm_launch launch = {.stream = stream};
  const size_t packed_size = convnorm_plan_packed_size(plan);
  const size_t workspace_size = convnorm_plan_workspace_size(plan);
  void* packed = on_device(NULL, packed_size);
  void* workspace = on_device(NULL, workspace_size);
  expect_ok(convnorm_pack_weight(plan, w, packed, packed_size, &launch));

  const convnorm_tensors tensors = {
      .x = x, .packed_weight = packed, .bias = bias, .gamma = gamma, .beta = beta, .y = y};
  expect_ok(convnorm_execute(plan, &tensors, workspace, workspace_size, &launch));
  expect_cuda(cudaMemcpyAsync(host_y, y, sizeof host_y, cudaMemcpyDeviceToHost, stream));
  /* Nothing has waited so far: what goes wrong on the device comes to light here. */
  expect_cuda(cudaStreamSynchronize(stream));
  int wrong = differs(&problem, "executed");

  /* A graph keeps the addresses, so its replays compute from what they hold by then. */
  cudaGraph_t graph = NULL;
  cudaGraphExec_t work = NULL;
  expect_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  expect_ok(convnorm_execute(plan, &tensors, workspace, workspace_size, &launch));
  expect_cuda(cudaStreamEndCapture(stream, &graph));
  expect_cuda(cudaGraphInstantiate(&work, graph, 0));
  for (int i = 0; i < X; ++i) host_x[i] = sinf(0.11f * (float)i);
  expect_cuda(cudaMemcpyAsync(x, host_x, sizeof host_x, cudaMemcpyHostToDevice, stream));
  expect_cuda(cudaGraphLaunch(work, stream));
  expect_cuda(cudaMemcpyAsync(host_y, y, sizeof host_y, cudaMemcpyDeviceToHost, stream));
  expect_cuda(cudaStreamSynchronize(stream));
  wrong += differs(&problem, "replayed with another x");

  /* A failure names the value and the way out. */
  convnorm_tensors misplaced = tensors;
  misplaced.x = host_x;
  wrong += convnorm_execute(plan, &misplaced, workspace, workspace_size, &launch) != CONVNORM_INVALID_ARGUMENT;
  printf("as it should: %s\n", convnorm_last_error());

  expect_cuda(cudaGraphExecDestroy(work));
  expect_cuda(cudaGraphDestroy(graph));
  expect_cuda(cudaStreamDestroy(stream));
  void* const memory[] = {x, w, bias, gamma, beta, y, packed, workspace};
  for (size_t i = 0; i < sizeof memory / sizeof *memory; ++i) expect_cuda(cudaFree(memory[i]));
  convnorm_plan_destroy(plan);
  return wrong != 0;
}
