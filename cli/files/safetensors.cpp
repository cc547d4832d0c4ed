#include "cli/files/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/files/atomic_file.hpp"
#include "cli/files/input_file.hpp"

namespace convnorm::cli {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kLengthBytes = sizeof(uint64_t);
constexpr std::string_view kMetadataKey = "__metadata__";
constexpr std::string_view kAcceptedTypes = "F16, BF16, F32, F64, I8, U8, I16, U16, I32, U32, I64, U64 and BOOL";

constexpr std::array kElementTypes = {ElementType::f16,    ElementType::bf16, ElementType::f32, ElementType::f64,
                                      ElementType::i8,     ElementType::u8,   ElementType::i16, ElementType::u16,
                                      ElementType::i32,    ElementType::u32,  ElementType::i64, ElementType::u64,
                                      ElementType::boolean};

std::string type_code(ElementType type) {
  std::string code(element_name(type));
  std::transform(code.begin(), code.end(), code.begin(), [](char c) { return c >= 'a' ? char(c - 'a' + 'A') : c; });
  return code;
}

struct Entry {
  std::optional<ElementType> type;
  std::optional<std::vector<int64_t>> shape;
  std::optional<std::vector<int64_t>> offsets;
};

struct Header {
  std::map<std::string, Entry> entries;
  std::optional<std::map<std::string, std::string>> metadata;
};

// Receives the JSON header event by event. No document is built, so nesting and size cost nothing: whatever the format
// has no place for is refused where it appears.
class HeaderHandler : public nlohmann::json_sax<json> {
 public:
  HeaderHandler(const InputFile& file, Header& header) : file_(file), header_(header) {}

  bool start_object(size_t) override {
    switch (place_) {
      case Place::outside:
        place_ = Place::names;
        return true;
      case Place::entry_expected:
        place_ = Place::fields;
        return true;
      case Place::metadata_expected:
        place_ = Place::metadata;
        return true;
      default:
        refuse("an object");
    }
  }

  bool end_object() override {
    place_ = place_ == Place::names ? Place::finished : Place::names;
    return true;
  }

  bool key(std::string& text) override {
    key_ = text;
    if (place_ == Place::names) {
      start_entry();
    } else if (place_ == Place::metadata) {
      if (header_.metadata->contains(key_)) fail_twice("the metadata key");
    } else if (key_ == "dtype") {
      if (entry_->type) fail_twice("the key");
    } else if (key_ == "shape" || key_ == "data_offsets") {
      if (numbers_of_key()) fail_twice("the key");
    } else {
      file_.fail(fmt::format("tensor {} has the key {}; it may have dtype, shape and data_offsets only",
                             printable(name_), printable(key_)));
    }
    return true;
  }

  bool string(std::string& text) override {
    if (place_ == Place::metadata) {
      header_.metadata->emplace(key_, text);
      return true;
    }
    if (place_ != Place::fields || key_ != "dtype") refuse("a string");
    const auto* found = std::find_if(kElementTypes.begin(), kElementTypes.end(),
                                     [&](ElementType type) { return type_code(type) == text; });
    if (found == kElementTypes.end()) {
      file_.fail(fmt::format("tensor {}: found dtype {}, accepted are {}; convert it before saving", printable(name_),
                             printable(text), kAcceptedTypes));
    }
    entry_->type = *found;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::fields || key_ == "dtype") refuse("an array");
    numbers_of_key().emplace();
    place_ = Place::numbers;
    return true;
  }

  bool end_array() override {
    place_ = Place::fields;
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (place_ != Place::numbers || value > uint64_t{std::numeric_limits<int64_t>::max()}) {
      refuse(fmt::format("the number {}", value));
    }
    std::vector<int64_t>& numbers = *numbers_of_key();
    if (numbers.size() == kMaxRank) {
      file_.fail(fmt::format("tensor {}: {} has more than {} numbers", printable(name_), key_, kMaxRank));
    }
    numbers.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool number_integer(int64_t value) override { refuse(fmt::format("the number {}", value)); }
  bool number_float(double, const std::string& text) override { refuse(fmt::format("the number {}", printable(text))); }
  bool null() override { refuse("null"); }
  bool boolean(bool value) override { refuse(value ? "true" : "false"); }
  bool binary(json::binary_t&) override { refuse("binary data"); }

  bool parse_error(size_t position, const std::string& token, const nlohmann::detail::exception&) override {
    file_.fail(fmt::format("the header is not JSON at its byte {}, near {}; write the file again", position,
                           printable(token)));
  }

 private:
  enum class Place { outside, names, entry_expected, fields, numbers, metadata_expected, metadata, finished };

  void start_entry() {
    name_ = key_;
    if (key_ == kMetadataKey) {
      if (header_.metadata) fail_twice("the name");
      header_.metadata.emplace();
      place_ = Place::metadata_expected;
      return;
    }
    const auto [position, inserted] = header_.entries.try_emplace(key_);
    if (!inserted) fail_twice("the name");
    entry_ = &position->second;
    place_ = Place::entry_expected;
  }

  std::optional<std::vector<int64_t>>& numbers_of_key() { return key_ == "shape" ? entry_->shape : entry_->offsets; }

  [[noreturn]] void fail_twice(std::string_view what) const {
    file_.fail(fmt::format("the header has {} {} twice; rename one", what, printable(key_)));
  }

  [[noreturn]] void refuse(std::string_view found) const {
    constexpr std::string_view kForm = R"({"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}})";
    file_.fail(fmt::format("the header has {} after {} where the form {} has none; write the file again", found,
                           printable(key_), kForm));
  }

  const InputFile& file_;
  Header& header_;
  Place place_ = Place::outside;
  std::string name_;
  std::string key_;
  Entry* entry_ = nullptr;
};

Header read_header(InputFile& file) {
  uint64_t length = 0;
  std::memcpy(&length, file.read(kLengthBytes, "the safetensors header length").data(), kLengthBytes);
  if (length > kMaxHeaderBytes) {
    file.fail(fmt::format("the header claims {} bytes, at most {} are accepted; check that this is a safetensors file",
                          length, kMaxHeaderBytes));
  }
  const std::vector<std::byte> bytes = file.read(length, "the safetensors header");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  // The JSON parser would skip a byte order mark and take a zero byte for the end of the text.
  if (!text.starts_with('{')) file.fail("the header does not start with {; check that this is a safetensors file");
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    file.fail(fmt::format("the header has a zero byte at offset {}; pad it with spaces", zero));
  }
  Header header;
  HeaderHandler handler(file, header);
  json::sax_parse(text, &handler);
  return header;
}

struct Placement {
  const std::string* name;
  Tensor tensor;
  int64_t begin;
  int64_t bytes;
};

// Each tensor's shape against its own offsets; the order of the offsets is checked while the data is read.
Placement place_tensor(const InputFile& file, const std::string& name, Entry& entry) {
  if (!entry.type || !entry.shape || !entry.offsets) {
    file.fail(fmt::format("tensor {} needs dtype, shape and data_offsets; write the file again", printable(name)));
  }
  if (entry.offsets->size() != 2) {
    file.fail(
        fmt::format("tensor {} has {} data_offsets, it needs begin and end", printable(name), entry.offsets->size()));
  }
  const int64_t begin = entry.offsets->front();
  const int64_t end = entry.offsets->back();
  int64_t bytes = 0;
  try {
    bytes = byte_count(*entry.type, *entry.shape);
  } catch (const FileError& error) {
    file.fail(fmt::format("tensor {}: {}", printable(name), error.what()));
  }
  if (begin > end || end - begin != bytes) {
    file.fail(
        fmt::format("tensor {} of shape {} and type {} needs {} bytes, but its data_offsets are {} to {}; write the "
                    "file again",
                    printable(name), shape_text(*entry.shape), element_name(*entry.type), bytes, begin, end));
  }
  return {&name, {*entry.type, std::move(*entry.shape), {}}, begin, bytes};
}

}  // namespace

SafetensorsFile read_safetensors(const std::filesystem::path& path) {
  InputFile file(path);
  Header header = read_header(file);
  std::vector<Placement> placements;
  for (auto& [name, entry] : header.entries) placements.push_back(place_tensor(file, name, entry));
  std::sort(placements.begin(), placements.end(), [](const Placement& a, const Placement& b) {
    return std::pair(a.begin, a.bytes) < std::pair(b.begin, b.bytes);
  });

  SafetensorsFile content;
  if (header.metadata) content.metadata = std::move(*header.metadata);
  int64_t position = 0;
  for (Placement& placement : placements) {
    if (placement.begin != position) {
      file.fail(fmt::format(
          "tensor {} begins at {} but the tensor before it ends at {}, which is {}; write the file again",
          printable(*placement.name), placement.begin, position, placement.begin < position ? "an overlap" : "a hole"));
    }
    placement.tensor.data = file.read(static_cast<uint64_t>(placement.bytes),
                                      fmt::format("the data of tensor {}", printable(*placement.name)));
    position += placement.bytes;
    content.tensors.emplace(*placement.name, std::move(placement.tensor));
  }
  file.expect_end(fmt::format("the {} bytes of the tensors", position));
  return content;
}

void write_safetensors(const std::filesystem::path& path, const SafetensorsFile& content) {
  std::vector<const std::pair<const std::string, Tensor>*> order;
  for (const auto& named : content.tensors) {
    if (named.first == kMetadataKey) {
      throw FileError(fmt::format("{}: no tensor can be called {}; rename it", path.string(), kMetadataKey));
    }
    require_consistent(named.second);
    order.push_back(&named);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return element_size(a->second.type) > element_size(b->second.type);
  });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!content.metadata.empty()) header[std::string(kMetadataKey)] = content.metadata;
  uint64_t position = 0;
  for (const auto* named : order) {
    const Tensor& tensor = named->second;
    const uint64_t end = position + tensor.data.size();
    header[named->first] = {
        {"dtype", type_code(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {position, end}}};
    position = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const json::exception&) {
    throw FileError(fmt::format("{}: a tensor name or metadata is not UTF-8; rename it", path.string()));
  }
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  if (text.size() > kMaxHeaderBytes) {
    throw FileError(fmt::format("{}: the header would take {} bytes, at most {} can be read back; split the file",
                                path.string(), text.size(), kMaxHeaderBytes));
  }

  const uint64_t length = text.size();
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(text);
  for (const auto* named : order) file.write(named->second.data);
  file.commit();
}

}  // namespace convnorm::cli
