// The border between exceptions inside and status codes outside.
#pragma once

#include <cstddef>
#include <new>
#include <string_view>

#include "descriptor/problem.hpp"
#include "descriptor/text.hpp"

namespace convnorm {

// The calling thread's text of its last failure; never null.
const char* last_error();

// Keeps the text, without allocating, and hands the status on.
convnorm_status report(convnorm_status status, std::string_view text);

// Runs body; whatever it throws becomes a status and this thread's last error.
template <class Body>
convnorm_status guarded(Body&& body) noexcept {
  try {
    body();
    return CONVNORM_OK;
  } catch (const Failure& failure) {
    return report(failure.status(), failure.what());
  } catch (const std::bad_alloc&) {
    return report(CONVNORM_OUT_OF_MEMORY, "memory for the plan could not be had; free some and try again");
  } catch (const std::exception& fault) {
    return report(CONVNORM_INTERNAL_ERROR, fault.what());
  } catch (...) {
    return report(CONVNORM_INTERNAL_ERROR, "an exception of unknown type reached the C interface");
  }
}

// The argument itself, or a Failure that names it.
template <class T>
T& required(T* argument, const char* name) {
  if (argument == nullptr) fail(CONVNORM_INVALID_ARGUMENT, "{} is null; pass the address of one", name);
  return *argument;
}

// The protocol of every function that hands out text: see convnorm_problem_print.
void copy_text(std::string_view text, char* buffer, size_t capacity, size_t* needed);

}  // namespace convnorm
