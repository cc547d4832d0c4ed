// The only file that knows OpenMP; without it the default pool is the calling thread.
#include "plan/default_pool.hpp"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace convnorm {

int default_threads() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

void default_parallel_for([[maybe_unused]] void* context, int32_t count, void (*body)(void* argument, int32_t index),
                          void* argument) {
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic, 1) num_threads(*static_cast <const int*>(context))
#endif
  for (int32_t i = 0; i < count; ++i) body(argument, i);
}

}  // namespace convnorm
