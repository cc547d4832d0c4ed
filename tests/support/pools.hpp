// Pools to hand to the library in place of its own: results must not depend on them.
#pragma once

#include <thread>
#include <vector>

#include "convnorm/convnorm.h"

namespace convnorm::test {

inline void in_order(void*, int32_t count, void (*body)(void*, int32_t), void* argument) {
  for (int32_t i = 0; i < count; ++i) body(argument, i);
}

inline void reversed(void*, int32_t count, void (*body)(void*, int32_t), void* argument) {
  for (int32_t i = count; i-- > 0;) body(argument, i);
}

inline void thread_each(void*, int32_t count, void (*body)(void*, int32_t), void* argument) {
  std::vector<std::thread> threads;
  for (int32_t i = 0; i < count; ++i) threads.emplace_back(body, argument, i);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace convnorm::test
