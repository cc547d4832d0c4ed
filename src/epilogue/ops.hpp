// The operations of ops.def as a table: what a name means, and what an operation needs.
#pragma once

#include <cmath>
#include <span>
#include <string_view>

#include "convnorm/convnorm.h"

namespace convnorm {

enum class OpKind { pointwise, slope, film, add, glu };

struct OpInfo {
  convnorm_op op;
  std::string_view name;
  OpKind kind;
  double default_param;  // NaN: takes none
  std::string_view formula;

  constexpr bool takes_param() const { return default_param == default_param; }
};

inline constexpr OpInfo kOps[] = {
#define CONVNORM_OP(enumerator, name, kind, default_param, formula) \
  {CONVNORM_##enumerator, #name, OpKind::kind, default_param, formula},
#include "epilogue/ops.def"
#undef CONVNORM_OP
};

// Row i describes the enumerator i + 1, so a lookup is an index. CONVNORM_NONE has no row.
constexpr bool rows_follow_the_enumeration() {
  for (int i = 0; i < static_cast<int>(std::size(kOps)); ++i) {
    if (static_cast<int>(kOps[i].op) != i + 1) return false;
  }
  return kOps[std::size(kOps) - 1].op == CONVNORM_GLU;
}
static_assert(rows_follow_the_enumeration(), "ops.def and convnorm_op must list the same operations in the same order");

inline constexpr bool is_op(convnorm_op op) { return op > CONVNORM_NONE && op <= CONVNORM_GLU; }

// `op` is one of the table, not CONVNORM_NONE.
inline constexpr const OpInfo& op_info(convnorm_op op) { return kOps[op - 1]; }

// Null if there is none of that name.
inline constexpr const OpInfo* find_op(std::string_view name) {
  for (const OpInfo& info : kOps) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

}  // namespace convnorm
