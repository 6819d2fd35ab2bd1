#include "formats/tensors/gguf_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "support/gguf_bytes.h"
#include "support/temporary_folder.h"

namespace rapt::test {
using namespace detail;
namespace {

class Gguf : public ::testing::Test {
 protected:
  GgufFile open(const GgufBytes& bytes) const {
    put(path_, bytes.bytes());
    return GgufFile(path_);
  }
  void refused(const GgufBytes& bytes, std::vector<std::string> words) const {
    words.push_back(path_);
    expect_broken([&] { open(bytes); }, words);
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "a.gguf";
};

/// One tensor and nothing else.
GgufBytes one(const std::vector<std::uint64_t>& sizes, std::uint32_t type, std::size_t data_bytes,
              std::uint64_t offset = 0) {
  return GgufBytes()
      .begin(1, 0)
      .tensor("x", sizes, type, offset)
      .pad()
      .raw(std::string(data_bytes, '\0'));
}

TEST_F(Gguf, MetadataOfEveryType) {
  GgufBytes b;
  b.begin(0, 16);
  b.entry<std::uint8_t>("z.u8", 0, 200).entry<std::int8_t>("a.i8", 1, -3);
  b.entry<std::uint16_t>("u16", 2, 65535).entry<std::int16_t>("i16", 3, -32768);
  b.entry<std::uint32_t>("u32", 4, 4294967295u).entry<std::int32_t>("i32", 5, -7);
  b.entry<float>("f32", 6, 1.5f).entry<std::uint8_t>("yes", 7, 1);
  b.text_entry("text", std::string("a\0b", 3)).entry<std::uint64_t>("u64", 10, ~std::uint64_t{0});
  b.entry<std::int64_t>("i64", 11, -5).entry<double>("f64", 12, 0.1);
  b.list_entry<std::int32_t>("list", 5, {3, -4}).list_entry<float>("floats", 6, {0.5f});
  b.texts_entry("texts", {"", "two", "x"}).texts_entry("none", {});
  const GgufFile file = open(b);
  const GgufMetadata& m = file.metadata();
  EXPECT_EQ(m.size(), 16);
  EXPECT_EQ(m.keys().front(), "a.i8");
  EXPECT_EQ(m.keys().back(), "z.u8");
  EXPECT_EQ(m.integer("z.u8"), 200);
  EXPECT_EQ(m.integer("a.i8"), -3);
  EXPECT_EQ(m.integer("u16"), 65535);
  EXPECT_EQ(m.integer("i16"), -32768);
  EXPECT_EQ(m.integer("u32"), 4294967295);
  EXPECT_EQ(m.integer("i32"), -7);
  EXPECT_EQ(m.integer("i64"), -5);
  EXPECT_EQ(m.number("f32"), 1.5);
  EXPECT_EQ(m.number("f64"), 0.1);
  EXPECT_EQ(m.number("i32"), -7.0);
  EXPECT_TRUE(m.boolean("yes"));
  EXPECT_EQ(m.text("text"), std::string_view("a\0b", 3));
  EXPECT_EQ(m.integers("list"), (std::vector<Index>{3, -4}));
  EXPECT_EQ(m.numbers("list"), (std::vector<double>{3, -4}));
  EXPECT_EQ(m.numbers("floats"), (std::vector<double>{0.5}));
  EXPECT_EQ(m.texts("texts"), (std::vector<std::string_view>{"", "two", "x"}));
  EXPECT_TRUE(m.texts("none").empty());
  EXPECT_FALSE(m.has("other"));
  EXPECT_TRUE(file.tensors().empty());
}

TEST_F(Gguf, AValueIsTakenOnlyAsWhatItIs) {
  GgufBytes b;
  b.begin(0, 4).entry<float>("f", 6, 1).text_entry("t", "12");
  b.entry<std::uint64_t>("u", 10, ~std::uint64_t{0}).list_entry<std::int8_t>("l", 1, {1});
  const GgufFile file = open(b);
  const GgufMetadata& m = file.metadata();
  expect_broken([&] { m.integer("f"); }, {path_, "\"f\"", "not a whole number"});
  expect_broken([&] { m.integer("u"); }, {"18446744073709551615", "63 bits"});
  expect_broken([&] { m.number("t"); }, {"not a number"});
  expect_broken([&] { m.boolean("t"); }, {"not true or false"});
  expect_broken([&] { m.text("f"); }, {"not text"});
  expect_broken([&] { m.texts("l"); }, {"not a list of texts"});
  expect_broken([&] { m.numbers("f"); }, {"not a list of numbers"});
  expect_broken([&] { m.integers("t"); }, {"not a list of whole numbers"});
  expect_broken([&] { m.integer("absent"); }, {path_, "has no key \"absent\""});
}

TEST_F(Gguf, TensorsAreReadRowMajor) {
  for (const std::uint32_t version : {2u, 3u}) {
    GgufBytes b;
    b.begin(3, 0, version).tensor("w", {2, 3}, 0, 0).tensor("h", {4}, 1, 32);
    b.tensor("b", {1, 1, 2, 1}, 30, 64).pad();
    for (int i = 0; i < 6; ++i) b.number(static_cast<float>(i));
    b.pad();
    for (const float x : {1.f, -2.f, 65504.f, 0x1p-24f}) b.number(F16(x).bits);
    b.pad().number(Bf16(3).bits).number(Bf16(-0.0f).bits);
    const GgufFile file = open(b);
    EXPECT_EQ(file.tensors().size(), 3u);
    const Tensor w = file.read("w");
    EXPECT_EQ(w.shape(), (Shape{3, 2}));  // three rows of two
    for (int i = 0; i < 6; ++i) EXPECT_EQ(w.data()[i], static_cast<float>(i));
    const Tensor h = file.read("h");
    EXPECT_EQ(h.data()[2], 65504.f);
    EXPECT_EQ(h.data()[3], 0x1p-24f);
    const Tensor n = file.read("b");
    EXPECT_EQ(n.shape(), (Shape{1, 2, 1, 1}));
    EXPECT_EQ(n.data()[0], 3.f);
    EXPECT_TRUE(std::signbit(n.data()[1]));
    EXPECT_EQ(file.find("h")->bytes, 8);
    EXPECT_EQ(file.find("x"), nullptr);
    expect_broken([&] { file.read("x"); }, {path_, "has no tensor \"x\""});
  }
}

TEST_F(Gguf, AlignmentIsThatOfTheFile) {
  GgufBytes b;
  b.begin(2, 1).entry<std::uint32_t>("general.alignment", 4, 64);
  b.tensor("a", {1}, 0, 0).tensor("b", {1}, 0, 64).pad(64).number(1.f).pad(64).number(2.f);
  EXPECT_EQ(open(b).read("b").data()[0], 2.f);
  for (const std::uint32_t alignment : {0u, 1u, 24u, 131072u, 1u << 31})
    refused(GgufBytes().begin(0, 1).entry("general.alignment", 4, alignment),
            {"general.alignment", "power of two"});
  refused(GgufBytes().begin(0, 1).text_entry("general.alignment", "x"), {"not a whole number"});
}

TEST_F(Gguf, BeginningsThatCannotBe) {
  refused(GgufBytes(), {"byte 0", "needs 4 bytes", "only 0 left"});
  refused(GgufBytes().raw("GG"), {"only 2 left"});
  refused(GgufBytes().raw("ggjt0000"), {"no GGUF file", "ggjt"});
  for (const std::uint32_t version : {0u, 1u, 4u, ~0u})
    refused(GgufBytes().begin(0, 0, version), {"version " + std::to_string(version), "byte 4"});
  refused(GgufBytes().begin(0, 0, 0x03000000), {"big-endian"});
  refused(GgufBytes().raw("GGUF").number(3u).number(0u), {"number of tensors", "only 4 left"});
  const GgufBytes whole = GgufBytes().begin(1, 1).text_entry("k", "v").tensor("x", {1}, 0, 0).pad();
  for (std::size_t length = 0; length < whole.bytes().size(); ++length)
    refused(GgufBytes().raw(whole.bytes().substr(0, length)), {});
}

TEST_F(Gguf, CountsBeyondTheFile) {
  const std::uint64_t huge[] = {2,
                                1u << 20,
                                std::uint64_t{1} << 32,
                                std::uint64_t{1} << 63,
                                ~std::uint64_t{0},
                                ~std::uint64_t{0} / 33 + 1};
  for (const std::uint64_t n : huge) {
    refused(GgufBytes().begin(n, 0).pad(), {"the number of tensors is " + std::to_string(n)});
    refused(GgufBytes().begin(0, n), {"the number of keys is " + std::to_string(n), "byte 16"});
    refused(GgufBytes().begin(0, 1).number(n + 100).raw("key").pad(), {"the length of a key"});
    for (const std::uint32_t item : {0u, 5u, 8u, 12u}) {
      GgufBytes b;
      b.begin(0, 1).text("key").number(9u).number(item).number(n + 100).raw("1234");
      refused(b, {"the length of a list is"});
    }
    GgufBytes b;
    refused(b.begin(0, 1).text("key").number(8u).number(n + 100).raw("1234"), {"length of a text"});
  }
}

TEST_F(Gguf, KeysAndValuesThatCannotBe) {
  refused(GgufBytes().begin(0, 1).text_entry("", "v"), {"byte 24", "a key is empty"});
  refused(GgufBytes().begin(0, 1).text_entry(std::string(65536, 'k'), "v"), {"limit is 65535"});
  refused(GgufBytes().begin(0, 1).entry<std::uint64_t>("k", 13, 0), {"unknown type 13"});
  refused(GgufBytes().begin(0, 1).entry<std::uint64_t>("k", ~0u, 0), {"unknown type 4294967295"});
  refused(GgufBytes().begin(0, 1).entry<std::uint8_t>("k", 7, 2), {"neither 0 nor 1"});
  refused(GgufBytes().begin(0, 1).list_entry<std::uint8_t>("k", 7, {1, 255}), {"neither 0 nor 1"});
  refused(GgufBytes().begin(0, 1).list_entry<std::uint64_t>("k", 9, {1, 1}), {"list of lists"});
  refused(GgufBytes().begin(0, 2).text_entry("k", "v").text_entry("k", "w"),
          {"\"k\" occurs twice", "bytes 32 and"});
}

TEST_F(Gguf, TensorsThatCannotBe) {
  EXPECT_NO_THROW(open(one({8}, 0, 32)));
  refused(one({}, 0, 32), {"0 axes, expected 1 to 4"});
  refused(one({1, 1, 1, 1, 1}, 0, 32), {"5 axes, expected 1 to 4"});
  refused(one({0}, 0, 32), {"size 0 on an axis"});
  refused(one({4, 0}, 0, 32), {"size 0 on an axis"});
  refused(one({std::uint64_t{1} << 63}, 0, 32), {"size 9223372036854775808 on an axis"});
  for (const std::vector<std::uint64_t>& sizes :
       std::vector<std::vector<std::uint64_t>>{{1u << 31, 1u << 31, 2},
                                               {std::uint64_t{1} << 62},
                                               {1u << 16, 1u << 16, 1u << 16, 1u << 16}})
    refused(one(sizes, 0, 32), {"overflows 64 bits"});
  // As many bytes as an Index holds, but not as many numbers.
  refused(one({256, std::uint64_t{1} << 56}, 19, 32), {"overflows 64 bits"});
  for (const std::uint32_t type : {4u, 5u, 31u, 42u, ~0u})
    refused(one({32}, type, 32), {"unknown type " + std::to_string(type)});
  refused(one({33}, 8, 34), {"rows of 33 numbers, Q8_0 needs a multiple of 32"});
  refused(one({128, 2}, 12, 144), {"Q4_K needs a multiple of 256"});
  refused(one({9}, 0, 32), {"needs 36 bytes", "only 32 left"});
  refused(one({8}, 0, 32, 32), {"begins here, expected byte"});
  refused(one({8}, 0, 32, 1), {"begins here, expected byte"});
  refused(one({8}, 0, 32, ~std::uint64_t{0}), {"beyond the file"});
  refused(one({8}, 0, 32, std::uint64_t{1} << 62), {"beyond the file"});
  refused(one({8}, 0, 64), {"belong to no tensor"});
  refused(GgufBytes().begin(1, 0).tensor("", {1}, 0, 0).pad().number(1.f), {"name of a tensor"});
  refused(GgufBytes().begin(1, 0).tensor(std::string(1025, 'n'), {1}, 0, 0).pad().number(1.f),
          {"limit is 1024"});
}

TEST_F(Gguf, TensorsThatShareBytesOrNames) {
  GgufBytes overlap, names, hole;
  overlap.begin(2, 0).tensor("a", {8}, 0, 0).tensor("b", {8}, 0, 0).pad().raw(std::string(64, 0));
  refused(overlap, {"overlaps what is before it"});
  names.begin(2, 0).tensor("a", {8}, 0, 0).tensor("a", {8}, 0, 32).pad().raw(std::string(64, 0));
  refused(names, {"\"a\" occurs twice"});
  hole.begin(2, 0).tensor("a", {8}, 0, 0).tensor("b", {8}, 0, 64).pad().raw(std::string(96, 0));
  refused(hole, {"\"b\" begins here, expected byte"});
}

TEST_F(Gguf, TypesThatAreKnownButNotReadAreRefusedWhenAskedFor) {
  const GgufFile file = open(one({256}, 16, 66));
  expect_broken([&] { file.read("x"); }, {path_, "IQ2_XXS", "unsupported"});
}

TEST_F(Gguf, OpeningALargeFileReadsItsHeaderOnly) {  // a hole instead of a terabyte of numbers
  const std::uint64_t numbers = std::uint64_t{1} << 38;
  put(path_, one({numbers}, 0, 0).bytes());
  const auto header = static_cast<off_t>(get(path_).size());
  ASSERT_EQ(truncate(path_.c_str(), header + static_cast<off_t>(numbers * 4)), 0);
  EXPECT_EQ(GgufFile(path_).find("x")->bytes, Index{1} << 40);
}

TEST_F(Gguf, AFileThatShrinksIsAnError) {
  const GgufFile file = open(one({64}, 0, 256));
  ASSERT_EQ(truncate(path_.c_str(), 100), 0);
  expect_broken([&] { file.read("x"); }, {path_});
}

}  // namespace
}  // namespace rapt::test
