#include "descriptor/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

namespace convnorm {

namespace {

constexpr size_t kLongestQuote = 40;
constexpr size_t kLongestWord = 24;  // no name of ours is longer, and the distance costs a product of both lengths

size_t edit_distance(std::string_view a, std::string_view b) {
  std::array<size_t, kLongestWord + 1> row;
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  for (const char c : text.substr(0, kLongestQuote)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  return result + (text.size() > kLongestQuote ? "...\"" : "\"");
}

std::string shortest(double value) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  std::string text(digits.data(), end);
  if (const size_t e = text.find('e'); e != std::string::npos) {
    if (text[e + 1] == '+') text.erase(e + 1, 1);
    const size_t first = e + 1 + (text[e + 1] == '-');
    text.erase(first, text.find_first_not_of('0', first) - first);
  }
  return text;
}

uint64_t fnv1a(std::string_view bytes, uint64_t value) {
  for (const char c : bytes) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return value;
}

std::string_view closest(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  if (word.size() > kLongestWord) return best;
  size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string_view candidate : candidates) {
    // A distance as long as the candidate shares nothing with it.
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance && distance < candidate.size()) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace convnorm
