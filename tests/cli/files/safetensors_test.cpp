#include "cli/files/safetensors.hpp"

#include "tests/cli/files/support.hpp"

namespace convnorm::cli::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class Safetensors : public FilesTest {
 protected:
  SafetensorsFile read(std::string_view header, std::string_view data = "") const {
    return read_safetensors(write("x.safetensors", safetensors_file(header, data)));
  }

  std::string refused(std::string_view header, std::string_view data = "") const {
    return refusal([&] { read(header, data); });
  }
};

TEST_F(Safetensors, RoundTripOfEveryTypeWithMetadata) {
  SafetensorsFile content;
  content.metadata = {{"format", "pt"}, {"note \"quoted\"", "\xC3\xA9"}};
  for (int number = 0; number <= static_cast<int>(ElementType::boolean); ++number) {
    const auto type = static_cast<ElementType>(number);
    Tensor tensor{type, {1, 3}, std::vector<std::byte>(3 * element_size(type))};
    for (size_t i = 0; i < tensor.data.size(); ++i) tensor.data[i] = static_cast<std::byte>(i * 29 + 3);
    content.tensors.emplace(std::string("layer.") + std::string(element_name(type)), tensor);
  }
  content.tensors.emplace("empty", Tensor{ElementType::f32, {0, 4}, {}});
  content.tensors.emplace("scalar", make_tensor<double>(ElementType::f64, {}, {2.5}));
  write_safetensors(path("y.safetensors"), content);

  const SafetensorsFile back = read_safetensors(path("y.safetensors"));
  EXPECT_EQ(back.metadata, content.metadata);
  ASSERT_EQ(back.tensors.size(), content.tensors.size());
  for (const auto& [name, tensor] : content.tensors) expect_same(back.tensors.at(name), tensor);
}

TEST_F(Safetensors, WritesTheReferenceBytes) {
  SafetensorsFile content;
  content.tensors.emplace("a", make_tensor<uint8_t>(ElementType::u8, {1}, {9}));
  content.tensors.emplace("b", make_tensor<float>(ElementType::f32, {1, 2}, {1, 2}));
  write_safetensors(path("y.safetensors"), content);
  std::string header =
      R"({"b":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"a":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(read_bytes(path("y.safetensors")), safetensors_file(header, raw(1.0F) + raw(2.0F) + "\x09"));
}

TEST_F(Safetensors, ReadsAnyOrderOfOffsetsAndKeys) {
  const SafetensorsFile content = read(
      R"({"__metadata__":{"k":"v"}, "z":{"shape":[2],"data_offsets":[4,8],"dtype":"I16"},
          "a\u0041":{"data_offsets":[0,4],"dtype":"F32","shape":[]}, "none":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}}  )",
      raw(1.5F) + raw(int16_t{-1}) + raw(int16_t{2}));
  EXPECT_THAT(content.metadata, ElementsAre(Pair("k", "v")));
  EXPECT_THAT(to_float32(content.tensors.at("z")), ElementsAre(-1, 2));
  EXPECT_THAT(to_float32(content.tensors.at("aA")), ElementsAre(1.5F));
  EXPECT_THAT(content.tensors.at("none").shape, ElementsAre(0));
  EXPECT_TRUE(read("{}").tensors.empty());
}

TEST_F(Safetensors, B120_DeclaredMoreThanPresent) {
  EXPECT_THAT(refused(R"({"w":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]}})", raw(1.0F)),
              AllOf(HasSubstr("\"w\" of shape (1000, 1000) and type f32 needs 4000000 bytes"), HasSubstr("0 to 4")));
  EXPECT_THAT(refused(R"({"w":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4000000]}})", raw(1.0F)),
              HasSubstr("the data of tensor \"w\" takes 4000000 bytes but only 4 follow"));
}

TEST_F(Safetensors, B122_InconsistentSize) {
  EXPECT_THAT(refused(R"({"w":{"dtype":"F64","shape":[4],"data_offsets":[0,16]}})", std::string(16, 'x')),
              HasSubstr("shape (4,) and type f64 needs 32 bytes, but its data_offsets are 0 to 16"));
}

TEST_F(Safetensors, RefusesOffsetsThatLie) {
  const std::string eight(8, 'x');
  const auto two = [](std::string_view first, std::string_view second) {
    return R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)" + std::string(first) +
           R"(},"b":{"dtype":"F32","shape":[1],"data_offsets":)" + std::string(second) + "}}";
  };
  EXPECT_EQ(refused(two("[0,4]", "[4,8]"), eight), "");
  EXPECT_THAT(refused(two("[0,4]", "[0,4]"), eight), HasSubstr("an overlap"));
  EXPECT_THAT(refused(two("[0,4]", "[3,7]"), eight), HasSubstr("an overlap"));
  EXPECT_THAT(refused(two("[0,4]", "[5,9]"), eight + "x"), HasSubstr("a hole"));
  EXPECT_THAT(refused(two("[1,5]", "[5,9]"), eight + "x"), HasSubstr("a hole"));
  EXPECT_THAT(refused(two("[0,4]", "[4,8]"), eight + "xyz"), HasSubstr("3 bytes follow the 8 bytes of the tensors"));
  EXPECT_THAT(refused(two("[0,4]", "[8,4]"), eight), HasSubstr("8 to 4"));
  EXPECT_THAT(refused(two("[0,4]", "[4]"), eight), HasSubstr("has 1 data_offsets"));
  EXPECT_THAT(refused(two("[0,4]", "[4,8,8]"), eight), HasSubstr("has 3 data_offsets"));
  EXPECT_THAT(refused(two("[0,4]", "[-4,0]"), eight), HasSubstr("the number -4"));
  EXPECT_THAT(refused(two("[0,4]", "[4.0,8]"), eight), HasSubstr("the number \"4.0\""));
  EXPECT_THAT(refused(two("[0,4]", "[18446744073709551612,18446744073709551615]"), eight), HasSubstr("the number"));
  EXPECT_THAT(refused(two("[0,4]", "[9223372036854775803,9223372036854775807]"), eight), HasSubstr("a hole"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})"),
              HasSubstr("more elements than 64 bits"));
}

TEST_F(Safetensors, RefusesNamesAndTypes) {
  constexpr std::string_view kEntry = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  const auto named = [&](std::string_view first, std::string_view second) {
    return "{\"" + std::string(first) + "\":" + std::string(kEntry) + ",\"" + std::string(second) +
           "\":" + std::string(kEntry) + "}";
  };
  EXPECT_THAT(refused(named("a", "a"), "x"), HasSubstr("the name \"a\" twice"));
  EXPECT_THAT(refused(named("a", "\\u0061"), "x"), HasSubstr("the name \"a\" twice"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", "x"),
              AllOf(HasSubstr("tensor \"a\": found dtype \"F8_E4M3\", accepted are F16, BF16")));
  EXPECT_THAT(refused(R"({"a":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}})", "xxxx"), HasSubstr("\"f32\""));
  EXPECT_THAT(refused(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"),
              HasSubstr("the key \"dtype\" twice"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", "x"),
              HasSubstr("the key \"shape\" twice"));
  EXPECT_THAT(refused(R"({"__metadata__":{},"__metadata__":{}})"), HasSubstr("\"__metadata__\" twice"));
  EXPECT_THAT(refused(R"({"__metadata__":{"k":"1","k":"2"}})"), HasSubstr("\"k\" twice"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"U8","shape":[1]}})", "x"), HasSubstr("needs dtype, shape and data_offsets"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1}})", "x"),
              HasSubstr("has the key \"more\""));
}

TEST_F(Safetensors, RefusesJsonOfAnotherForm) {
  for (const std::string_view header : {"",
                                        "[]",
                                        "1",
                                        "null",
                                        "{",
                                        "{}x",
                                        "{}{}",
                                        " {}",
                                        "\xEF\xBB\xBF{}",
                                        R"({"a":1})",
                                        R"({"a":[]})",
                                        R"({"a":{"dtype":1}})",
                                        R"({"a":{"dtype":["U8"]}})",
                                        R"({"a":{"shape":"1"}})",
                                        R"({"a":{"shape":[[1]]}})",
                                        R"({"a":{"shape":[{}]}})",
                                        R"({"a":{"shape":["1"]}})",
                                        R"({"a":{"shape":[null]}})",
                                        R"({"a":{"shape":{}}})",
                                        R"({"a":{"shape":[true]}})",
                                        R"({"__metadata__":{"k":1}})",
                                        R"({"__metadata__":{"k":{}}})",
                                        R"({"__metadata__":[]})",
                                        R"({"__metadata__":"x"})",
                                        "{\"a\xFF\":{}}",
                                        "{\"a\n\":{}}",
                                        R"({"a":{},})"}) {
    EXPECT_NE(refused(header), "") << header;
  }
  EXPECT_THAT(refused(std::string("{}\0\0", 4)), HasSubstr("zero byte at offset 2"));
  EXPECT_NE(refused("{\"a\":" + std::string(100000, '[')), "");
  EXPECT_NE(refused(std::string(100000, '{')), "");
  std::string ones = "1";
  for (size_t i = 0; i < kMaxRank; ++i) ones += ",1";
  EXPECT_THAT(refused(R"({"a":{"dtype":"U8","shape":[)" + ones + "]}}"), HasSubstr("more than 64 numbers"));
}

TEST_F(Safetensors, RefusesHeaderLengthsThatLie) {
  const auto refused_bytes = [&](std::string_view bytes) {
    return refusal([&] { read_safetensors(write("x.safetensors", bytes)); });
  };
  EXPECT_THAT(refused_bytes("short"), HasSubstr("only 5 follow"));
  EXPECT_THAT(refused_bytes(raw(uint64_t{3}) + "{}"), HasSubstr("takes 3 bytes but only 2 follow"));
  EXPECT_THAT(refused_bytes(raw(uint64_t{99'999'999}) + "{}"), HasSubstr("takes 99999999 bytes but only 2 follow"));
  EXPECT_THAT(refused_bytes(raw(~uint64_t{0}) + "{}"), HasSubstr("claims 18446744073709551615 bytes"));
}

TEST_F(Safetensors, RefusesToWriteWhatCannotBeRead) {
  const Tensor tensor = make_tensor<uint8_t>(ElementType::u8, {1}, {1});
  const auto refused_write = [&](const SafetensorsFile& content) {
    return refusal([&] { write_safetensors(path("y.safetensors"), content); });
  };
  EXPECT_THAT(refused_write({{{"__metadata__", tensor}}, {}}), HasSubstr("no tensor can be called __metadata__"));
  EXPECT_THAT(refused_write({{{"\xFF", tensor}}, {}}), HasSubstr("not UTF-8"));
  EXPECT_THAT(refused_write({{{"a", {ElementType::f32, {1}, {}}}}, {}}), HasSubstr("needs 4 bytes, its data has 0"));
  EXPECT_THAT(names(), ElementsAre());
}

}  // namespace
}  // namespace convnorm::cli::testing
