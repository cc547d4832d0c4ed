#include "cli/files/npy.hpp"

#include <sys/stat.h>

#include <thread>

#include "tests/cli/files/support.hpp"

namespace convnorm::cli::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Npy : public FilesTest {
 protected:
  Tensor read(std::string_view header, std::string_view data, int major = 1) const {
    return read_npy(write("x.npy", npy_file(header, data, major)));
  }

  std::string refused(std::string_view header, std::string_view data = "", int major = 1) const {
    return refusal([&] { read(header, data, major); });
  }
};

std::string header_of(std::string_view descr, std::string_view shape, std::string_view order = "False") {
  return "{'descr': " + std::string(descr) + ", 'fortran_order': " + std::string(order) +
         ", 'shape': " + std::string(shape) + ", }";
}

// x[n][c][l] = 12 n + 4 c + l of shape (2, 3, 4), in the order in which Fortran stores it.
std::vector<float> fortran_values() {
  std::vector<float> values;
  for (int l = 0; l < 4; ++l) {
    for (int c = 0; c < 3; ++c) {
      for (int n = 0; n < 2; ++n) values.push_back(static_cast<float>(12 * n + 4 * c + l));
    }
  }
  return values;
}

TEST_F(Npy, RoundTripOfEveryType) {
  for (int number = 0; number <= static_cast<int>(ElementType::boolean); ++number) {
    const auto type = static_cast<ElementType>(number);
    Tensor tensor{type, {2, 3}, std::vector<std::byte>(6 * element_size(type))};
    for (size_t i = 0; i < tensor.data.size(); ++i) tensor.data[i] = static_cast<std::byte>(i * 37 + 1);
    write_npy(path("y.npy"), tensor);
    expect_same(read_npy(path("y.npy")), tensor);
    EXPECT_EQ(read_bytes(path("y.npy")).size(), 128 + tensor.data.size());
  }
}

TEST_F(Npy, RoundTripOfEveryRank) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{}, {1}, {0}, {7}, {3, 0, 5}, std::vector<int64_t>(kMaxRank, 1)}) {
    Tensor tensor{ElementType::u8, shape, std::vector<std::byte>(static_cast<size_t>(element_count(shape)))};
    write_npy(path("y.npy"), tensor);
    expect_same(read_npy(path("y.npy")), tensor);
  }
}

TEST_F(Npy, WritesWhatNumpyWrites) {
  write_npy(path("y.npy"), make_tensor<float>(ElementType::f32, {1, 2}, {1, -2}));
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }";
  header.append(117 - header.size(), ' ') += '\n';
  EXPECT_EQ(read_bytes(path("y.npy")), npy_file(header, raw(1.0F) + raw(-2.0F)));

  write_npy(path("y.npy"), make_tensor<uint16_t>(ElementType::bf16, {1}, {0x3F80}));
  EXPECT_THAT(read_bytes(path("y.npy")), HasSubstr("{'descr': '<V2', 'fortran_order': False, 'shape': (1,), }"));
  write_npy(path("y.npy"), make_tensor<uint8_t>(ElementType::boolean, {}, {1}));
  EXPECT_THAT(read_bytes(path("y.npy")), HasSubstr("{'descr': '|b1', 'fortran_order': False, 'shape': (), }"));
}

TEST_F(Npy, RefusesToWriteAnInconsistentTensor) {
  EXPECT_THROW(write_npy(path("y.npy"), {ElementType::f32, {2}, std::vector<std::byte>(4)}), FileError);
  EXPECT_THAT(names(), ElementsAre());
}

TEST_F(Npy, B116_FortranOrder) {
  const Tensor x = read(header_of("'<f4'", "(2, 3, 4)", "True"), raw_all(fortran_values()));
  const std::vector<float> values = to_float32(x);
  EXPECT_EQ(values[1], 1);
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(values[i], i);
}

TEST_F(Npy, B116_FortranOrderOfEmptyAndScalarArrays) {
  EXPECT_THAT(to_float32(read(header_of("'<f4'", "()", "True"), raw(5.0F))), ElementsAre(5));
  EXPECT_THAT(to_float32(read(header_of("'<f4'", "(1152921504606846976, 4, 0)", "True"), "")), ElementsAre());
}

TEST_F(Npy, B118_BigEndian) {
  EXPECT_THAT(to_float32(read(header_of("'>f4'", "(3,)"), std::string("\x3F\x80\0\0\x40\0\0\0\x40\x40\0\0", 12))),
              ElementsAre(1, 2, 3));
  EXPECT_THAT(to_float64(read(header_of("'>i8'", "(1,)"), std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFE", 8))),
              ElementsAre(-2));
  EXPECT_THAT(to_float32(read(header_of("'>f2'", "(1, 2)", "True"), std::string("\x3C\0\xC0\0", 4))),
              ElementsAre(1, -2));
  EXPECT_THAT(to_float32(read(header_of("'>V2'", "(1,)"), "\x3F\x80")), ElementsAre(1));
}

TEST_F(Npy, B119_RefusalNamesFoundAndAccepted) {
  EXPECT_THAT(refused(header_of("'|O'", "(1,)")), AllOf(HasSubstr("found Python objects, type \"|O\""),
                                                        HasSubstr("accepted are f2, f4, f8"), HasSubstr("x.npy")));
  EXPECT_THAT(refused(header_of("'<U5'", "(1,)")), HasSubstr("found text, type \"<U5\", accepted"));
  EXPECT_THAT(refused(header_of("'|S5'", "(1,)")), HasSubstr("found byte strings, type \"|S5\", accepted"));
  EXPECT_THAT(refused(header_of("'<c8'", "(1,)")), HasSubstr("found complex numbers, type \"<c8\", accepted"));
  EXPECT_THAT(refused(header_of("'<M8[ns]'", "(1,)")), HasSubstr("found dates, type \"<M8[ns]\", accepted"));
  EXPECT_THAT(refused(header_of("'|V4'", "(1,)")), HasSubstr("found raw records, type \"|V4\", accepted"));
  EXPECT_THAT(refused(header_of("'<f16'", "(1,)")), HasSubstr("found type \"<f16\", accepted"));
  EXPECT_THAT(refused(header_of("[('a', '<f4'), ('b', '<i2')]", "(1,)")),
              HasSubstr("found the structured type \"[('a', '<f4'), ('b', '<i2')]\", accepted"));
  EXPECT_THAT(refused(header_of("''", "(1,)")), HasSubstr("found type \"\""));
}

TEST_F(Npy, B119_ConvertsWhatItAccepts) {
  EXPECT_THAT(to_float32(read(header_of("'<f8'", "(1,)"), raw(0.1))), ElementsAre(0.1F));
  EXPECT_THAT(to_float32(read(header_of("'<i2'", "(2,)"), raw(int16_t{-7}) + raw(int16_t{9}))), ElementsAre(-7, 9));
  EXPECT_THAT(to_float32(read(header_of("'|b1'", "(2,)"), std::string("\1\0", 2))), ElementsAre(1, 0));
}

TEST_F(Npy, HeaderFreedomsOfNumpy) {
  for (const std::string_view header : {
           "{'descr':'<f4','fortran_order':False,'shape':(1,2)}",
           "  { \"shape\" : ( 1 ,\n2 , ) , 'fortran_order' : False,\t\"descr\": '<f4' }  \n",
           "{'fortran_order': False, 'shape': (1L, 2L), 'descr': '=f4'}",
           "{'descr': 'f4', 'fortran_order': False, 'shape': (1, 2), }",
       }) {
    expect_same(read(header, raw(3.0F) + raw(4.0F)), make_tensor<float>(ElementType::f32, {1, 2}, {3, 4}));
  }
  for (const int version : {2, 3}) {
    EXPECT_THAT(to_float32(read(header_of("'<V2'", "(1,)"), "\x80\x3F", version)), ElementsAre(1));
    EXPECT_THAT(to_float32(read(header_of("'?'", "(1,)"), "\1", version)), ElementsAre(1));
  }
  EXPECT_THAT(refused(header_of("'<f4'", "(1L,)"), raw(1.0F), 3), HasSubstr("\"L,)"));
}

TEST_F(Npy, RefusesHeadersThatAreNotTheDict) {
  const std::string data = raw(1.0F);
  for (const std::string_view header : {
           "",
           "{",
           "{}",
           "[]",
           "{'descr': '<f4'",
           "{'descr': '<f4', 'fortran_order': False}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': 1}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': [1]}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1,,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (01,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (0x1,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1.0,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (True,)}",
           "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
           "{'descr': '<f4', 'fortran_order': Falsehood, 'shape': (1,)}",
           "{'descr': '<f4', 'fortran_order': None, 'shape': (1,)}",
           "{'descr': 4, 'fortran_order': False, 'shape': (1,)}",
           "{'descr': '<>f4', 'fortran_order': False, 'shape': (1,)}",
           "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x",
           "{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}",
           "{,'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1,),,}",
       }) {
    EXPECT_NE(refused(header, data), "") << header;
  }
  EXPECT_NE(refused(std::string("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}\0", 56), data), "");
}

TEST_F(Npy, RefusesShapesThatLie) {
  const std::string four = raw(1.0F);
  EXPECT_THAT(refused(header_of("'<f4'", "(-3,)"), four), HasSubstr("dimension -3 is negative"));
  EXPECT_THAT(refused(header_of("'<f4'", "(9223372036854775808,)"), four),
              HasSubstr("dimension 9223372036854775808 needs more than 63 bits"));
  EXPECT_THAT(refused(header_of("'<f4'", "(4611686018427387904, 4)"), four), HasSubstr("more elements than 64 bits"));
  EXPECT_THAT(refused(header_of("'<f4'", "(4611686018427387904,)"), four), HasSubstr("more bytes than 64 bits"));
  EXPECT_THAT(refused(header_of("'<f4'", "(4294967296, 4294967296, 0)"), ""), HasSubstr("more elements than 64 bits"));
  EXPECT_THAT(refused(header_of("'<f4'", "(1000000000000,)"), four),
              HasSubstr("shape (1000000000000,) and type f32 takes 4000000000000 bytes but only 4 follow"));
  EXPECT_THAT(refused(header_of("'<f4'", "(1,)"), four + "ab"), HasSubstr("2 bytes follow the 4 bytes of the data"));
  std::string ones;
  for (size_t i = 0; i <= kMaxRank; ++i) ones += "1,";
  EXPECT_THAT(refused(header_of("'<f4'", "(" + ones + ")"), four), HasSubstr("more than 64 dimensions"));
}

TEST_F(Npy, RefusesPreamblesThatLie) {
  const auto refused_bytes = [&](std::string_view bytes) { return refusal([&] { read_npy(write("x.npy", bytes)); }); };
  EXPECT_THAT(refused_bytes(""), HasSubstr("only 0 follow"));
  EXPECT_THAT(refused_bytes("PK\3\4 a zip file"), HasSubstr("is not an npy file"));
  EXPECT_THAT(refused_bytes(npy_file("{}", "", 4)), HasSubstr("npy version 4.0"));
  EXPECT_THAT(refused_bytes(npy_file("{}", "", 1, 1)), HasSubstr("npy version 1.1"));
  EXPECT_THAT(refused_bytes(std::string("\x93NUMPY\1\0\x60\0{}", 12)), HasSubstr("takes 96 bytes but only 2 follow"));
  EXPECT_THAT(refused_bytes(std::string("\x93NUMPY\2\0\xFF\xFF\xFF\xFF{}", 14)), HasSubstr("claims 4294967295 bytes"));
}

TEST_F(Npy, MessagesDoNotPassControlCharacters) {
  const std::string message = refused(header_of("'\x1B[2J\x07'", "(1,)"));
  EXPECT_THAT(message, HasSubstr("\\x1b[2J\\x07"));
  EXPECT_EQ(message.find('\x1B'), std::string::npos);
}

TEST_F(Npy, ReadsFromAPipe) {
  const std::string bytes = npy_file(header_of("'<f4'", "(1,)"), raw(2.0F));
  const auto read_through_pipe = [&](const std::string& content) {
    const std::filesystem::path pipe = path("pipe");
    std::filesystem::remove(pipe);
    EXPECT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    std::jthread writer([&] { std::ofstream(pipe, std::ios::binary) << content; });
    return read_npy(pipe);
  };
  EXPECT_THAT(to_float32(read_through_pipe(bytes)), ElementsAre(2));
  EXPECT_THAT(refusal([&] { read_through_pipe(bytes + "x"); }), HasSubstr("more bytes follow"));
  EXPECT_THAT(refusal([&] { read_through_pipe(npy_file(header_of("'<f4'", "(1000000000000,)"), raw(2.0F))); }),
              HasSubstr("takes 4000000000000 bytes but only 4 follow"));
}

TEST_F(Npy, RefusesWhatIsNotAFile) {
  EXPECT_THAT(refusal([&] { read_npy(directory_); }), HasSubstr("is a directory"));
  EXPECT_THAT(refusal([&] { read_npy(path("absent.npy")); }), HasSubstr("absent.npy: cannot be opened"));
  EXPECT_THAT(refusal([&] { read_npy("/dev/zero"); }), HasSubstr("/dev/zero: is not an npy file"));
}

}  // namespace
}  // namespace convnorm::cli::testing
