// The problem line. One table of keys serves reading and printing, so the two cannot drift apart.
#include <array>
#include <bitset>
#include <charconv>
#include <vector>

#include "descriptor/names.hpp"
#include "descriptor/text.hpp"
#include "epilogue/ops.hpp"

namespace convnorm {

namespace {

constexpr size_t kLongestLine = 4096;

template <class... Args>
[[noreturn]] void unreadable(fmt::format_string<Args...> format, Args&&... args) {
  fail(CONVNORM_PARSE_ERROR, format, std::forward<Args>(args)...);
}

// p=same and p=causal stand for numbers that are known once the whole line has been read.
enum class PaddingRule { given, same, causal };

struct Draft {
  Problem problem = default_problem();
  PaddingRule padding = PaddingRule::given;
};

struct Key {
  std::string_view name;
  std::string_view meaning;  // also what a reader may have typed instead
  bool required;
  void (*read)(Draft&, std::string_view key, std::string_view value);
  std::string (*write)(const Problem&);
};

template <class Number>
Number read_number(std::string_view key, std::string_view text) {
  constexpr bool kInteger = std::is_integral_v<Number>;
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::result_out_of_range) {
    unreadable("{}={} is out of the range of a 64-bit {}; use one that fits", key, in_quotes(text),
               kInteger ? "integer" : "number");
  }
  if (error != std::errc{} || end != text.data() + text.size()) {
    unreadable("{}={} is not {}", key, in_quotes(text), kInteger ? "an integer such as 3" : "a number such as 1e-5");
  }
  return number;
}

[[noreturn]] void unknown_value(std::string_view key, std::string_view value, std::span<const std::string_view> names) {
  const std::string_view guess = closest(value, names);
  unreadable("{}={} is not known{}; use one of {}", key, in_quotes(value),
             guess.empty() ? "" : fmt::format(" (did you mean {}?)", guess), fmt::join(names, ", "));
}

template <int64_t Problem::*kMember>
constexpr Key integer(std::string_view name, std::string_view meaning, bool required = false) {
  return {name, meaning, required,
          [](Draft& draft, std::string_view key, std::string_view value) {
            draft.problem.*kMember = read_number<int64_t>(key, value);
          },
          [](const Problem& problem) { return std::to_string(problem.*kMember); }};
}

template <int32_t Problem::*kMember>
constexpr Key flag(std::string_view name, std::string_view meaning) {
  return {name, meaning, false,
          [](Draft& draft, std::string_view key, std::string_view value) {
            if (value != "0" && value != "1") unreadable("{}={} must be 0 or 1", key, in_quotes(value));
            draft.problem.*kMember = value == "1";
          },
          [](const Problem& problem) { return std::to_string(problem.*kMember); }};
}

template <auto kMember, const auto& kNames>
constexpr Key choice(std::string_view name, std::string_view meaning) {
  return {name, meaning, false,
          [](Draft& draft, std::string_view key, std::string_view value) {
            auto& member = draft.problem.*kMember;
            for (size_t i = 0; i < kNames.size(); ++i) {
              if (kNames[i] == value) {
                member = static_cast<std::remove_reference_t<decltype(member)>>(i);
                return;
              }
            }
            unknown_value(key, value, kNames);
          },
          [](const Problem& problem) { return std::string(kNames[problem.*kMember]); }};
}

void read_padding(Draft& draft, std::string_view key, std::string_view value) {
  if (value == "same" || value == "causal") {
    draft.padding = value == "same" ? PaddingRule::same : PaddingRule::causal;
    return;
  }
  const size_t colon = value.find(':');
  const std::string_view right = colon == std::string_view::npos ? value : value.substr(colon + 1);
  if (right.find_first_not_of("-0123456789") != std::string_view::npos) {
    unreadable("{}={} is no padding; use one such as 1, 2:0 (left:right), same or causal", key, in_quotes(value));
  }
  draft.problem.pad_left = read_number<int64_t>(key, value.substr(0, colon));
  draft.problem.pad_right = read_number<int64_t>(key, right);
}

std::string write_padding(const Problem& p) {
  return p.pad_left == p.pad_right ? std::to_string(p.pad_left) : fmt::format("{}:{}", p.pad_left, p.pad_right);
}

convnorm_stage read_stage(std::string_view key, std::string_view text) {
  const size_t bracket = text.find('(');
  const std::string_view name = text.substr(0, bracket);
  const OpInfo* info = find_op(name);
  if (info == nullptr) {
    std::array<std::string_view, std::size(kOps)> names;
    for (size_t i = 0; i < names.size(); ++i) names[i] = kOps[i].name;
    unknown_value(key, name, names);
  }
  if (bracket == std::string_view::npos) return {info->op, info->takes_param() ? info->default_param : 0};
  if (!info->takes_param()) unreadable("{}={}: {} takes no parameter; write {}", key, in_quotes(text), name, name);
  if (text.back() != ')') unreadable("{}={} lacks its closing bracket at the end", key, in_quotes(text));
  return {info->op, read_number<double>(name, text.substr(bracket + 1, text.size() - bracket - 2))};
}

std::string write_stage(const convnorm_stage& stage) {
  if (stage.op == CONVNORM_NONE) return "none";
  const OpInfo& info = op_info(stage.op);
  if (!info.takes_param() || stage.param == info.default_param) return std::string(info.name);
  return fmt::format("{}({})", info.name, shortest(stage.param));
}

void read_pre(Draft& draft, std::string_view key, std::string_view value) {
  draft.problem.pre = value == "none" ? convnorm_stage{} : read_stage(key, value);
}

void read_post(Draft& draft, std::string_view key, std::string_view value) {
  Problem& p = draft.problem;
  p.post_count = 0;
  if (value == "none") return;
  for (size_t begin = 0; begin <= value.size();) {
    // A "+" inside brackets belongs to a number such as 1e+3.
    size_t end = begin;
    for (bool inside = false; end < value.size() && (inside || value[end] != '+'); ++end) {
      inside = value[end] == '(' || (inside && value[end] != ')');
    }
    if (p.post_count == CONVNORM_MAX_POST) {
      unreadable("{}={} lists more than {} operations; leave some out", key, in_quotes(value),
                 static_cast<int>(CONVNORM_MAX_POST));
    }
    p.post[p.post_count++] = read_stage(key, value.substr(begin, end - begin));
    begin = end + 1;
  }
}

std::string write_post(const Problem& p) {
  std::string text;
  for (int i = 0; i < p.post_count; ++i) text += fmt::format("{}{}", i == 0 ? "" : "+", write_stage(p.post[i]));
  return text;
}

constexpr Key kKeys[] = {
    integer<&Problem::n>("n", "batch", true),
    integer<&Problem::c>("c", "channels", true),
    integer<&Problem::l>("l", "length", true),
    integer<&Problem::o>("o", "output_channels", true),
    integer<&Problem::k>("k", "kernel", true),
    integer<&Problem::stride>("s", "stride"),
    integer<&Problem::dilation>("d", "dilation"),
    {"p", "padding", false, read_padding, write_padding},
    choice<&Problem::pad, kPadNames>("pad", "padding_mode"),
    integer<&Problem::conv_groups>("cg", "conv_groups"),
    integer<&Problem::groups>("g", "groups", true),
    flag<&Problem::bias>("bias", "bias"),
    flag<&Problem::affine>("affine", "affine"),
    {"eps", "epsilon", false,
     [](Draft& draft, std::string_view key, std::string_view value) {
       draft.problem.eps = read_number<double>(key, value);
     },
     [](const Problem& p) { return shortest(p.eps); }},
    {"pre", "pre_op", false, read_pre, [](const Problem& p) { return write_stage(p.pre); }},
    {"post", "activation", false, read_post, write_post},
    flag<&Problem::lengths>("lengths", "lengths"),
    choice<&Problem::layout, kLayoutNames>("layout", "layout"),
    choice<&Problem::dtype, kDtypeNames>("dtype", "dtype"),
    choice<&Problem::precision, kPrecisionNames>("precision", "precision"),
};
constexpr size_t kKeyCount = std::size(kKeys);

size_t find_key(std::string_view name) {
  std::array<std::string_view, kKeyCount> names;
  std::array<std::string_view, kKeyCount> meanings;
  for (size_t i = 0; i < kKeyCount; ++i) {
    if (kKeys[i].name == name) return i;
    names[i] = kKeys[i].name;
    meanings[i] = kKeys[i].meaning;
  }
  std::string_view guess = closest(name, names);
  if (const std::string_view meant = closest(name, meanings); !meant.empty()) {
    guess = kKeys[std::find(meanings.begin(), meanings.end(), meant) - meanings.begin()].name;
  }
  unreadable("unknown key {}{}; the keys are {}", in_quotes(name),
             guess.empty() ? "" : fmt::format(" (did you mean {}?)", guess), fmt::join(names, ", "));
}

void check_characters(std::string_view line) {
  if (line.empty()) unreadable("the problem line is empty; write one such as n=16,c=128,l=1024,o=256,k=3,p=1,g=32");
  if (line.size() > kLongestLine) {
    unreadable("the problem line has more than {} characters; one problem needs far fewer", kLongestLine);
  }
  for (size_t i = 0; i < line.size(); ++i) {
    const auto byte = static_cast<unsigned char>(line[i]);
    if (byte <= 0x20 || byte >= 0x7f) {
      unreadable(
          "the problem line holds a blank or special character (code {}) at position {}; "
          "join key=value pairs by commas alone",
          byte, i + 1);
    }
  }
}

// A kernel or dilation below 1 and an overflow are left for validate() to name.
void resolve_padding(Draft& draft) {
  Problem& p = draft.problem;
  int64_t span = 0;
  if (draft.padding == PaddingRule::given || p.k < 1 || p.dilation < 1) return;
  if (__builtin_mul_overflow(p.dilation, p.k - 1, &span)) return;
  if (draft.padding == PaddingRule::causal) {
    p.pad_left = span;
    return;
  }
  if (p.stride > 1) {
    fail(CONVNORM_INVALID_ARGUMENT, "p=same needs s=1, not s={}; give the padding as left:right, such as p={}:{}",
         p.stride, span / 2, span - span / 2);
  }
  p.pad_left = span / 2;
  p.pad_right = span - span / 2;
}

}  // namespace

Problem parse_problem(std::string_view line) {
  check_characters(line);
  Draft draft;
  std::bitset<kKeyCount> seen;
  for (size_t begin = 0; begin <= line.size();) {
    const size_t end = std::min(line.find(',', begin), line.size());
    const std::string_view pair = line.substr(begin, end - begin);
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == pair.size()) {
      unreadable("{} at position {} is no key=value pair; write one such as n=16", in_quotes(pair), begin + 1);
    }
    const size_t index = find_key(pair.substr(0, equals));
    const Key& key = kKeys[index];
    if (seen[index]) unreadable("the key {} is given twice; leave one out", key.name);
    seen[index] = true;
    key.read(draft, key.name, pair.substr(equals + 1));
    begin = end + 1;
  }
  std::vector<std::string> missing;
  for (size_t i = 0; i < kKeyCount; ++i) {
    if (kKeys[i].required && !seen[i]) missing.push_back(fmt::format("{} ({})", kKeys[i].name, kKeys[i].meaning));
  }
  if (!missing.empty()) unreadable("the problem line lacks {}; give a value for each", fmt::join(missing, ", "));
  resolve_padding(draft);
  validate(draft.problem);
  return canonical(draft.problem);
}

std::string print_problem(const Problem& problem) {
  const Problem p = canonical(problem);
  const Problem defaults = default_problem();
  std::string line;
  for (const Key& key : kKeys) {
    const std::string value = key.write(p);
    if (key.required || value != key.write(defaults))
      line += fmt::format("{}{}={}", line.empty() ? "" : ",", key.name, value);
  }
  return line;
}

}  // namespace convnorm
