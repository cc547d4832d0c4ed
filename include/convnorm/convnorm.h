/* convnorm: Conv1d -> GroupNorm -> activation as one operator.
 *
 *     y = post( GroupNorm_G( pre( conv1d(x, w) + b ) ) )
 *
 * A problem is a plain value, also written as one line of text; a plan chooses how to compute it and can explain
 * itself; weights are packed once; executing a plan allocates nothing and may be done from many threads at once.
 *
 *     convnorm_problem problem;
 *     convnorm_plan* plan = NULL;
 *     convnorm_problem_parse("n=16,c=128,l=1024,o=256,k=3,p=1,g=32,post=silu", &problem);
 *     convnorm_plan_create(&problem, NULL, &plan);
 *     void* packed = malloc(convnorm_plan_packed_size(plan));
 *     void* workspace = malloc(convnorm_plan_workspace_size(plan));
 *     convnorm_pack_weight(plan, w, packed, convnorm_plan_packed_size(plan), NULL);
 *     convnorm_tensors t = {.x = x, .packed_weight = packed, .gamma = gamma, .beta = beta, .y = y};
 *     convnorm_execute(plan, &t, workspace, convnorm_plan_workspace_size(plan), NULL);
 *     convnorm_plan_destroy(plan);
 *
 * On a GPU (options.device = CONVNORM_CUDA) all tensors, the packed weight and the workspace are device memory, work is
 * put into the stream of convnorm_launch, and nothing waits for it:
 *
 *     convnorm_plan_options options = {.device = CONVNORM_CUDA};
 *     convnorm_launch launch = {.stream = stream};
 *     convnorm_plan_create(&problem, &options, &plan);
 *     convnorm_pack_weight(plan, w, packed, convnorm_plan_packed_size(plan), &launch);
 *     convnorm_execute(plan, &t, workspace, convnorm_plan_workspace_size(plan), &launch);
 *
 * Every function that can fail returns a convnorm_status; convnorm_last_error() then gives one sentence that names the
 * value at fault and the way out. The library never ends the process, never throws across this interface and keeps no
 * state that a caller can see. Calls with bad input write nothing.
 */
#ifndef CONVNORM_CONVNORM_H_
#define CONVNORM_CONVNORM_H_

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define CONVNORM_API
#else
#define CONVNORM_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status ---------------------------------------------------------------------------------------------------- */

typedef enum convnorm_status {
  CONVNORM_OK = 0,
  CONVNORM_INVALID_ARGUMENT = 1, /* a value breaks a rule of the operator, or a pointer that is needed is null */
  CONVNORM_PARSE_ERROR = 2,      /* a problem line cannot be read */
  CONVNORM_UNSUPPORTED = 3,      /* the path or target that was asked for refuses this problem */
  CONVNORM_OUT_OF_MEMORY = 4,    /* host memory for a plan could not be had */
  CONVNORM_BUFFER_TOO_SMALL = 5, /* a buffer of the caller is smaller than what was asked for */
  CONVNORM_PACKED_MISMATCH = 6,  /* packed weights were packed for another plan, or not packed at all */
  CONVNORM_NO_DEVICE = 7,        /* the device is not in this build or not in this machine */
  CONVNORM_DEVICE_ERROR = 8,     /* the device reported an error */
  CONVNORM_INTERNAL_ERROR = 9    /* a fault of the library: please report the problem line */
} convnorm_status;

/* One fixed sentence per status. Never null. */
CONVNORM_API const char* convnorm_status_string(convnorm_status status);

/* Detail of the last failure in the calling thread ("" if none). Valid until that thread's next failing call. */
CONVNORM_API const char* convnorm_last_error(void);

/* "major.minor.patch". */
CONVNORM_API const char* convnorm_version(void);

/* ---- Types ----------------------------------------------------------------------------------------------------- */

typedef enum convnorm_dtype { CONVNORM_F32 = 0, CONVNORM_F16 = 1, CONVNORM_BF16 = 2 } convnorm_dtype;

/* NCL: (batch, channels, length), length contiguous. NLC: (batch, length, channels), channels contiguous. */
typedef enum convnorm_layout { CONVNORM_NCL = 0, CONVNORM_NLC = 1 } convnorm_layout;

typedef enum convnorm_padding { CONVNORM_ZEROS = 0, CONVNORM_REFLECT = 1, CONVNORM_REPLICATE = 2 } convnorm_padding;

/* How fp32 products may be formed. The CPU backend multiplies in fp32, fused with the addition where the
 * instruction set has that: all three are `highest` there, as on a GPU's path any_arch. */
typedef enum convnorm_precision {
  CONVNORM_HIGHEST = 0, /* as IEEE fp32 */
  CONVNORM_HIGH = 1,    /* three 16-bit products; the default */
  CONVNORM_MEDIUM = 2   /* one 16-bit product */
} convnorm_precision;

typedef enum convnorm_device { CONVNORM_CPU = 0, CONVNORM_CUDA = 1 } convnorm_device;

/* What may happen to a value before or after the norm. docs/problem-line.md has each formula. */
typedef enum convnorm_op {
  CONVNORM_NONE = 0,
  CONVNORM_RELU = 1,
  CONVNORM_LEAKY_RELU = 2, /* param: negative slope, default 0.01 */
  CONVNORM_PRELU = 3,      /* slope tensor: one element or one per channel */
  CONVNORM_SILU = 4,
  CONVNORM_GELU = 5,      /* x * Phi(x), by erf */
  CONVNORM_GELU_TANH = 6, /* the tanh approximation */
  CONVNORM_MISH = 7,
  CONVNORM_ELU = 8, /* param: alpha, default 1 */
  CONVNORM_TANH = 9,
  CONVNORM_SIGMOID = 10,
  CONVNORM_FILM = 11, /* y * film_scale[n, c] + film_shift[n, c] */
  CONVNORM_ADD = 12,  /* y + residual, shaped as y */
  CONVNORM_GLU = 13   /* a * sigmoid(b): first and second half of the channels; halves the channels */
} convnorm_op;

typedef struct convnorm_stage {
  convnorm_op op;
  double param; /* of leaky_relu and elu; ignored by the others */
} convnorm_stage;

enum { CONVNORM_MAX_POST = 8 };

/* ---- Describe -------------------------------------------------------------------------------------------------- */

/* One problem. Shapes: x (N, C_in, L), w (C_out, C_in/conv_groups, K), y (N, C_y, L_out) with
 * L_out = floor((L + pad_left + pad_right - dilation*(K-1) - 1) / stride) + 1, C_y = C_out, or C_out/2 after a glu. */
typedef struct convnorm_problem {
  int64_t n;            /* batch, >= 0 */
  int64_t c;            /* C_in */
  int64_t l;            /* L, >= 0 */
  int64_t o;            /* C_out */
  int64_t k;            /* K */
  int64_t stride;       /* >= 1 */
  int64_t dilation;     /* >= 1 */
  int64_t pad_left;     /* >= 0 */
  int64_t pad_right;    /* >= 0 */
  int64_t conv_groups;  /* divides c and o */
  int64_t groups;       /* norm groups, divides o; 0: no normalisation */
  double eps;           /* added to the biased variance; > 0 */
  convnorm_padding pad; /* what stands in the padding */
  convnorm_layout layout;
  convnorm_dtype dtype; /* of x, w, residual and y */
  convnorm_precision precision;
  int32_t bias;    /* 1: b is given */
  int32_t affine;  /* 1: gamma and beta are given (ignored when groups = 0) */
  int32_t lengths; /* 1: per-sample valid lengths are given */
  int32_t post_count;
  convnorm_stage pre; /* none, relu or prelu, between convolution and norm */
  convnorm_stage post[CONVNORM_MAX_POST];
} convnorm_problem;

/* All defaults of the problem line; n, c, l, o, k and groups are 0 and must be set. */
CONVNORM_API void convnorm_problem_init(convnorm_problem* problem);

/* Reads a line such as "n=1,c=512,l=16,o=512,k=5,p=2,g=8,bias=1,post=mish+film" and validates it.
 * Errors: PARSE_ERROR (unknown key or value, a number that is none), INVALID_ARGUMENT (a rule is broken). */
CONVNORM_API convnorm_status convnorm_problem_parse(const char* line, convnorm_problem* problem);

/* Checks every rule. parse and plan_create do this themselves. */
CONVNORM_API convnorm_status convnorm_problem_validate(const convnorm_problem* problem);

/* The canonical line (defaults left out, fixed order), at most `capacity` bytes with its final zero.
 * `needed` (may be null) receives the full size, final zero included; with a null buffer that is all that is asked.
 * Errors: BUFFER_TOO_SMALL, INVALID_ARGUMENT. */
CONVNORM_API convnorm_status convnorm_problem_print(const convnorm_problem* problem, char* buffer, size_t capacity,
                                                    size_t* needed);

/* 1 if both are valid and print as the same line. */
CONVNORM_API int convnorm_problem_equal(const convnorm_problem* a, const convnorm_problem* b);

/* Equal problems have equal hashes, on every machine and in every version with the same major number. 0 if not valid. */
CONVNORM_API uint64_t convnorm_problem_hash(const convnorm_problem* problem);

/* L_out and C_y of a valid problem; -1 if it is not valid. */
CONVNORM_API int64_t convnorm_problem_output_length(const convnorm_problem* problem);
CONVNORM_API int64_t convnorm_problem_output_channels(const convnorm_problem* problem);

/* ---- Plan ------------------------------------------------------------------------------------------------------ */

typedef struct convnorm_plan_options {
  convnorm_device device; /* CONVNORM_CUDA: the device that is current (cudaSetDevice) when the plan is created */
  int32_t threads;    /* most workers of one execute; 0: as many as the default pool has; not used on GPUs */
  const char* path;   /* null: the one expected to be the fastest, on CPUs the first of the registry that accepts;
                         else this one or UNSUPPORTED with its reason */
  const char* target; /* null: the best of this machine; else "SSE4", "AVX2", "AVX3", "NEON", ..., or a GPU's "sm_90" */
  /* 0, or 1 for a promise that lets a GPU fetch the weight of one execute while the kernel before it still runs
   * (programmatic dependent launch): no packed_weight given to execute is written, or copied, by a kernel that comes
   * directly before that execute in its stream, or directly before an unbroken run of such executes. Everything else
   * that an execute reads may be written there, and convnorm_pack_weight may stand there: it keeps the promise by
   * itself. A broken promise gives wrong results now and then. Paths that cannot use it ignore it; the packed weight is
   * the same with and without. */
  int32_t constant_weights;
} convnorm_plan_options;

CONVNORM_API void convnorm_plan_options_init(convnorm_plan_options* options);

/* Immutable once created: any number of threads may share one and execute it at the same time, each with its own
 * workspace. Destroy it when no call uses it any more. */
typedef struct convnorm_plan convnorm_plan;

/* `options` may be null. `*plan` is written only on success. Errors, beside those of the problem: NO_DEVICE (no CUDA in
 * this build, no driver, no device, or no code for it), UNSUPPORTED. */
CONVNORM_API convnorm_status convnorm_plan_create(const convnorm_problem* problem,
                                                  const convnorm_plan_options* options, convnorm_plan** plan);

/* Null is allowed. */
CONVNORM_API void convnorm_plan_destroy(convnorm_plan* plan);

CONVNORM_API void convnorm_plan_problem(const convnorm_plan* plan, convnorm_problem* problem);

/* Name of the chosen path and of its instruction set; both live as long as the plan. */
CONVNORM_API const char* convnorm_plan_path(const convnorm_plan* plan);
CONVNORM_API const char* convnorm_plan_target(const convnorm_plan* plan);

typedef enum convnorm_format { CONVNORM_TEXT = 0, CONVNORM_JSON = 1 } convnorm_format;

/* Chosen path, config, bytes moved, FLOPs, refusals with reasons, guarantees, and the floor: on CPUs from `machine`
 * (null: left out), on GPUs from the rates of the vendor's tables. On GPUs also the expected time, and those of the other
 * paths that accept. Size protocol as in convnorm_problem_print. */
struct convnorm_machine;
CONVNORM_API convnorm_status convnorm_plan_explain(const convnorm_plan* plan, const struct convnorm_machine* machine,
                                                   convnorm_format format, char* buffer, size_t capacity,
                                                   size_t* needed);

/* Names in the order in which a plan asks them; null past the end. */
CONVNORM_API const char* convnorm_path_name(convnorm_device device, int32_t index);

/* ---- Pack, execute --------------------------------------------------------------------------------------------- */

/* A pool for the CPU backend: calls body(argument, i) once for every i in [0, count), on any threads, in any order,
 * one after the other if need be, and returns when all are done. Results do not depend on it. */
typedef void (*convnorm_parallel_for)(void* context, int32_t count, void (*body)(void* argument, int32_t index),
                                      void* argument);

/* How one call runs. Null stands for all defaults. */
typedef struct convnorm_launch {
  convnorm_parallel_for parallel_for; /* null: OpenMP */
  void* parallel_context;
  void* stream;                       /* CUDA: a cudaStream_t of the plan's device */
  int32_t on_device;                  /* CUDA: 1 promises that all memory given to convnorm_execute is the plan's
                                       * device's; else the driver is asked about every pointer, some 0.1 us each */
} convnorm_launch;

/* Bytes of the packed weight. */
CONVNORM_API size_t convnorm_plan_packed_size(const convnorm_plan* plan);

/* w (C_out, C_in/conv_groups, K) in the problem's dtype -> `packed`, aligned as malloc does. The result may be used by
 * every plan on the same machine that reports the same problem, path, target and device, and copied to any address that
 * is equal to its own modulo 64, on GPUs modulo 256. Errors: BUFFER_TOO_SMALL, INVALID_ARGUMENT, DEVICE_ERROR.
 *
 * On a GPU `packed` is memory of the plan's device and is filled in the stream. `weight` may lie there or on the host.
 * Host memory is copied through a buffer that is allocated in the stream: do not capture that, and leave pinned memory
 * as it is until the stream has come this far. */
CONVNORM_API convnorm_status convnorm_pack_weight(const convnorm_plan* plan, const void* weight, void* packed,
                                                  size_t packed_size, const convnorm_launch* launch);

/* Whether `packed` was packed for this plan: OK or PACKED_MISMATCH. On a GPU this waits for the stream. There execute,
 * which never waits, leaves the question to its kernels: with a weight that does not fit, every valid output is NaN. */
CONVNORM_API convnorm_status convnorm_check_packed(const convnorm_plan* plan, const void* packed,
                                                   const convnorm_launch* launch);

/* Bytes of scratch that one execute needs; 0 is possible. Contents are not kept between calls. */
CONVNORM_API size_t convnorm_plan_workspace_size(const convnorm_plan* plan);

/* All tensors are dense. Null where the problem does not have them. `param_dtype` is the element type of bias, gamma,
 * beta, the slopes and film: CONVNORM_F32 (the zero default) or the problem's dtype. y must not overlap an input.
 * Tensors may start at any multiple of their element's size. On a GPU all of them, `lengths` too, lie in memory of the
 * plan's device or in managed memory; others are refused by name. */
typedef struct convnorm_tensors {
  const void* x;               /* (N, C_in, L), or (N, L, C_in) */
  const void* packed_weight;   /* from convnorm_pack_weight */
  const void* bias;            /* (C_out) */
  const void* gamma;           /* (C_out) */
  const void* beta;            /* (C_out) */
  const int64_t* lengths;      /* (N), each in [0, L]; on GPUs others are taken as the nearer end */
  const void* pre_slope;       /* (1) or (C_out) */
  const void* post_slope;      /* (1) or (channels at that point) */
  const void* film_scale;      /* (N, channels at that point) */
  const void* film_shift;      /* (N, channels at that point) */
  const void* residual;        /* shaped as y */
  void* y;                     /* (N, C_y, L_out), or (N, L_out, C_y) */
  int32_t pre_slope_per_channel;  /* 0: one slope, 1: one per channel */
  int32_t post_slope_per_channel; /* likewise */
  convnorm_dtype param_dtype;
} convnorm_tensors;

/* Computes y. Allocates nothing. `workspace` may be null if its size is 0. On a GPU all work goes into launch->stream
 * (null: the default one), nothing waits, the caller's current device stays, and the call may be captured in a graph;
 * calls that may run at the same time need a workspace each. */
CONVNORM_API convnorm_status convnorm_execute(const convnorm_plan* plan, const convnorm_tensors* tensors,
                                              void* workspace, size_t workspace_size, const convnorm_launch* launch);

/* ---- Machine --------------------------------------------------------------------------------------------------- */

/* What this machine's CPUs can do, measured. */
typedef struct convnorm_machine {
  double fma_gflops;      /* peak of independent fp32 fused multiply-adds, all threads together */
  double bandwidth_gbps;  /* memory bandwidth in GB/s: read plus written, of a streaming copy, all threads together */
  int32_t threads;
} convnorm_machine;

/* Takes about a tenth of a second. `threads` 0: as many as the default pool has; `target` as in plan options. */
CONVNORM_API convnorm_status convnorm_machine_measure(int32_t threads, const char* target, convnorm_machine* machine);

/* Instruction sets compiled in and present in this machine, best first; null past the end. */
CONVNORM_API const char* convnorm_target_name(int32_t index);

/* Version, instruction sets compiled and detected, threads, CUDA with its versions or why not. Size protocol as above. */
CONVNORM_API convnorm_status convnorm_info(convnorm_format format, char* buffer, size_t capacity, size_t* needed);

#ifdef __cplusplus
}
#endif

#endif /* CONVNORM_CONVNORM_H_ */
