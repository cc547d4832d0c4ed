#include "cli/files/npy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "cli/files/atomic_file.hpp"
#include "cli/files/input_file.hpp"

namespace convnorm::cli {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kPreambleBytes = 8;             // the magic and two version bytes
constexpr uint64_t kMaxHeaderBytes = 64 * 1024;  // the 64 longest dimensions take 1.4 KB
constexpr size_t kAlignment = 64;                // of the data, in files that are written
constexpr std::string_view kAcceptedTypes = "f2, f4, f8, i1, i2, i4, i8, u1, u2, u4, u8, b1 and V2 (bf16)";

struct TypeCode {
  std::string_view code;
  ElementType type;
};
constexpr std::array kTypeCodes = {
    TypeCode{"f2", ElementType::f16},     TypeCode{"V2", ElementType::bf16}, TypeCode{"f4", ElementType::f32},
    TypeCode{"f8", ElementType::f64},     TypeCode{"i1", ElementType::i8},   TypeCode{"u1", ElementType::u8},
    TypeCode{"i2", ElementType::i16},     TypeCode{"u2", ElementType::u16},  TypeCode{"i4", ElementType::i32},
    TypeCode{"u4", ElementType::u32},     TypeCode{"i8", ElementType::i64},  TypeCode{"u8", ElementType::u64},
    TypeCode{"b1", ElementType::boolean},
};

struct StoredType {
  ElementType type;
  bool big_endian;
};

struct Header {
  std::optional<StoredType> element;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;
};

std::string_view kind_name(char kind) {
  switch (kind) {
    case 'O':
      return "Python objects, ";
    case 'S':
    case 'a':
      return "byte strings, ";
    case 'U':
      return "text, ";
    case 'V':
      return "raw records, ";
    case 'c':
      return "complex numbers, ";
    case 'M':
      return "dates, ";
    case 'm':
      return "time spans, ";
    default:
      return "";
  }
}

// The header is a literal dict of Python. This takes the subset that describes a plain array, with the freedoms that
// NumPy's own reader has: any order of keys, either quote, any white space, trailing commas, and in versions 1 and 2
// the suffix L of integers written by Python 2.
class HeaderParser {
 public:
  HeaderParser(const InputFile& file, std::string_view text, bool long_suffix)
      : file_(file), text_(text), long_suffix_(long_suffix) {}

  Header parse() {
    Header header;
    expect('{');
    while (!accept('}')) {
      parse_entry(header);
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (position_ != text_.size()) refuse("the end of the header");
    if (!header.element || !header.fortran_order || !header.shape) {
      file_.fail("the header needs the keys 'descr', 'fortran_order' and 'shape'; write the file with numpy.save");
    }
    return header;
  }

 private:
  void parse_entry(Header& header) {
    const std::string_view key = parse_string("a key");
    expect(':');
    if (key == "descr") {
      assign_once(header.element, parse_type(), key);
    } else if (key == "fortran_order") {
      assign_once(header.fortran_order, parse_bool(), key);
    } else if (key == "shape") {
      assign_once(header.shape, parse_shape(), key);
    } else {
      file_.fail(fmt::format("the header has the key {}; it may have 'descr', 'fortran_order' and 'shape' only",
                             printable(key)));
    }
  }

  template <class T>
  void assign_once(std::optional<T>& field, T value, std::string_view key) const {
    if (field) file_.fail(fmt::format("the header has the key '{}' twice; remove one", key));
    field = std::move(value);
  }

  StoredType parse_type() {
    if (peek() == '[' || peek() == '(' || peek() == '{') {
      const std::string_view rest = text_.substr(position_);
      file_.fail(fmt::format("found the structured type {}, accepted are {}; save each field as its own array",
                             printable(rest.substr(0, std::min(rest.find(']'), rest.size() - 1) + 1)), kAcceptedTypes));
    }
    const std::string_view descr = parse_string("a type");
    std::string_view code = descr;
    char order = '|';
    if (!code.empty() && std::string_view("<>|=").find(code.front()) != std::string_view::npos) {
      order = code.front();
      code.remove_prefix(1);
    }
    if (code == "?") code = "b1";
    const auto* found = std::find_if(kTypeCodes.begin(), kTypeCodes.end(),
                                     [&](const TypeCode& candidate) { return candidate.code == code; });
    if (found == kTypeCodes.end()) {
      file_.fail(fmt::format("found {}type {}, accepted are {}; convert the array with astype",
                             kind_name(code.empty() ? ' ' : code.front()), printable(descr), kAcceptedTypes));
    }
    return {found->type, order == '>'};
  }

  bool parse_bool() {
    skip_space();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}}) {
      if (text_.substr(position_).starts_with(word)) {
        position_ += word.size();
        return value;
      }
    }
    refuse("True or False");
  }

  std::vector<int64_t> parse_shape() {
    std::vector<int64_t> shape;
    expect('(');
    while (!accept(')')) {
      if (shape.size() == kMaxRank) {
        file_.fail(fmt::format("the shape has more than {} dimensions; reshape the array", kMaxRank));
      }
      shape.push_back(parse_dimension());
      if (accept(',')) continue;
      // A number in brackets without a comma is a number in Python, not a tuple.
      if (shape.size() == 1) refuse("a comma after the only dimension");
      expect(')');
      break;
    }
    return shape;
  }

  int64_t parse_dimension() {
    const bool negative = accept('-');
    skip_space();
    const size_t start = position_;
    int64_t value = 0;
    bool overflow = false;
    while (position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9') {
      overflow |= __builtin_mul_overflow(value, int64_t{10}, &value);
      overflow |= __builtin_add_overflow(value, int64_t{text_[position_++] - '0'}, &value);
    }
    const std::string_view digits = text_.substr(start, position_ - start);
    if (digits.empty() || (digits.size() > 1 && digits.front() == '0')) refuse("a decimal dimension");
    if (negative) file_.fail(fmt::format("dimension -{:.24} is negative; a shape has 0 or more", digits));
    if (overflow) file_.fail(fmt::format("dimension {:.24} needs more than 63 bits; reshape the array", digits));
    if (long_suffix_ && position_ < text_.size() && text_[position_] == 'L') ++position_;
    return value;
  }

  std::string_view parse_string(std::string_view wanted) {
    const char quote = peek();
    if (quote != '\'' && quote != '"') refuse(wanted);
    const size_t start = position_ + 1;
    const size_t end = text_.find(quote, start);
    if (end == std::string_view::npos) refuse(wanted);
    position_ = end + 1;
    return text_.substr(start, end - start);
  }

  char peek() {
    skip_space();
    return position_ < text_.size() ? text_[position_] : '\0';
  }

  bool accept(char wanted) {
    if (peek() != wanted || position_ == text_.size()) return false;
    ++position_;
    return true;
  }

  void expect(char wanted) {
    if (!accept(wanted)) refuse(std::string_view(&wanted, 1));
  }

  void skip_space() {
    while (position_ < text_.size() && std::string_view(" \t\n\r\f").find(text_[position_]) != std::string_view::npos) {
      ++position_;
    }
  }

  [[noreturn]] void refuse(std::string_view wanted) const {
    file_.fail(fmt::format("the header has {} at offset {} where {} is expected; write the file with numpy.save",
                           printable(text_.substr(position_)), position_, wanted));
  }

  const InputFile& file_;
  std::string_view text_;
  size_t position_ = 0;
  bool long_suffix_;
};

uint64_t little_endian(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data(), bytes.size());
  return value;
}

Header read_header(InputFile& file) {
  const std::vector<std::byte> preamble = file.read(kPreambleBytes, "the npy signature");
  if (std::memcmp(preamble.data(), kMagic.data(), kMagic.size()) != 0) {
    file.fail("is not an npy file, for it does not start with \\x93NUMPY; write it with numpy.save");
  }
  const auto major = std::to_integer<int>(preamble[6]);
  const auto minor = std::to_integer<int>(preamble[7]);
  if (major < 1 || major > 3 || minor != 0) {
    file.fail(
        fmt::format("has npy version {}.{}, accepted are 1.0, 2.0 and 3.0; write it with numpy.save", major, minor));
  }
  const uint64_t length = little_endian(file.read(major == 1 ? 2 : 4, "the npy header length"));
  if (length > kMaxHeaderBytes) {
    file.fail(fmt::format("the header claims {} bytes, at most {} are accepted; save a plain array", length,
                          kMaxHeaderBytes));
  }
  const std::vector<std::byte> text = file.read(length, "the npy header");
  return HeaderParser(file, {reinterpret_cast<const char*>(text.data()), text.size()}, major < 3).parse();
}

void reverse_bytes(std::vector<std::byte>& data, size_t size) {
  for (auto element = data.begin(); element != data.end(); element += static_cast<std::ptrdiff_t>(size)) {
    std::reverse(element, element + static_cast<std::ptrdiff_t>(size));
  }
}

std::vector<std::byte> fortran_to_c_order(std::span<const std::byte> data, std::span<const int64_t> shape,
                                          size_t size) {
  std::vector<std::byte> result(data.size());
  if (result.empty()) return result;  // its other dimensions may be so large that the strides overflow
  std::array<int64_t, kMaxRank> index{};
  std::array<int64_t, kMaxRank> stride{};  // of each dimension in `data`, in bytes
  int64_t next_stride = static_cast<int64_t>(size);
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    stride[axis] = next_stride;
    next_stride *= shape[axis];
  }
  int64_t source = 0;
  for (size_t out = 0; out < result.size(); out += size) {
    std::memcpy(result.data() + out, data.data() + source, size);
    for (size_t axis = shape.size(); axis-- > 0;) {
      source += stride[axis];
      if (++index[axis] < shape[axis]) break;
      source -= stride[axis] * shape[axis];
      index[axis] = 0;
    }
  }
  return result;
}

std::string_view type_code(ElementType type) {
  return std::find_if(kTypeCodes.begin(), kTypeCodes.end(),
                      [&](const TypeCode& candidate) { return candidate.type == type; })
      ->code;
}

}  // namespace

Tensor read_npy(const std::filesystem::path& path) {
  InputFile file(path);
  Header header = read_header(file);
  Tensor tensor{header.element->type, std::move(*header.shape), {}};
  int64_t bytes = 0;
  try {
    bytes = byte_count(tensor.type, tensor.shape);
  } catch (const FileError& error) {
    file.fail(error.what());
  }
  const std::string what =
      fmt::format("the data of shape {} and type {}", shape_text(tensor.shape), element_name(tensor.type));
  tensor.data = file.read(static_cast<uint64_t>(bytes), what);
  file.expect_end(fmt::format("the {} bytes of {}", bytes, what));

  const size_t size = element_size(tensor.type);
  if (header.element->big_endian) reverse_bytes(tensor.data, size);
  if (*header.fortran_order) tensor.data = fortran_to_c_order(tensor.data, tensor.shape, size);
  return tensor;
}

void write_npy(const std::filesystem::path& path, const Tensor& tensor) {
  require_consistent(tensor);
  std::string header =
      fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': {}, }}",
                  element_size(tensor.type) == 1 ? '|' : '<', type_code(tensor.type), shape_text(tensor.shape));
  constexpr size_t kLengthBytes = 2;
  const size_t unpadded = kPreambleBytes + kLengthBytes + header.size() + 1;
  header.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  header += '\n';

  std::string preamble(kMagic);
  preamble += {'\1', '\0', static_cast<char>(header.size() & 0xFF), static_cast<char>(header.size() >> 8)};
  AtomicFile file(path);
  file.write(preamble);
  file.write(header);
  file.write(tensor.data);
  file.commit();
}

}  // namespace convnorm::cli
