#include "formats/tensors/safetensors_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "support/cpu_time.h"
#include "support/refused.h"
#include "support/temporary_folder.h"

namespace rapt::test {
using namespace detail;
namespace {

std::string length_field(std::uint64_t length) {
  return {reinterpret_cast<const char*>(&length), 8};
}
std::string file_of(const std::string& header, const std::string& data = "") {
  return length_field(header.size()) + header + data;
}
std::string entry(const std::string& type, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}
std::string one(const std::string& type, const std::string& shape, const std::string& offsets) {
  return R"({"x":)" + entry(type, shape, offsets) + "}";
}

class Safetensors : public ::testing::Test {
 protected:
  std::string with(const std::string& bytes) const {
    put(path_, bytes);
    return path_;
  }
  void accepted(const std::string& bytes) const {
    EXPECT_NO_THROW(SafetensorsFile(with(bytes))) << bytes.substr(0, 200);
  }
  void refused(const std::string& bytes, std::vector<std::string> words) const {
    words.push_back(path_);
    expect_broken([&] { SafetensorsFile(with(bytes)); }, words);
  }
  void refused_header(const std::string& header, const std::vector<std::string>& words,
                      const std::string& data = "") const {
    refused(file_of(header, data), words);
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "a.safetensors";
};

TEST_F(Safetensors, WhatIsWrittenIsReadBack) {
  Tensor a({2, 3}), b({5}, Type::bf16), c({1, 2, 1, 2}, Type::f16), none({0, 7});
  for (int i = 0; i < 6; ++i) a.data()[i] = static_cast<float>(i) - 2.5f;
  for (int i = 0; i < 5; ++i) b.data<Bf16>()[i] = Bf16(static_cast<float>(i));
  for (int i = 0; i < 4; ++i) c.data<F16>()[i] = F16(static_cast<float>(i));
  const std::vector<NamedTensor> tensors{
      {"half", b}, {"z", a}, {"sixteen \n\"", c}, {"none", none}};
  const FileDigest digest = write_safetensors(path_, tensors, {{"format", "pt"}, {"k", "v\x01"}});
  EXPECT_EQ(digest, digest_of(path_));
  const SafetensorsFile file(path_);
  EXPECT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.metadata().at("k"), "v\x01");
  ASSERT_NE(file.find("z"), nullptr);
  EXPECT_EQ(file.find("z")->offset % 64, 0);  // f32 go first
  EXPECT_EQ(file.find("z")->shape, (std::vector<Index>{2, 3}));
  EXPECT_EQ(file.find("zz"), nullptr);
  for (const NamedTensor& want : tensors) {
    const Tensor got = file.read(want.name);
    EXPECT_EQ(got.shape(), want.numbers.shape());
    EXPECT_EQ(got.type(), want.numbers.type());
    const auto bytes = static_cast<std::size_t>(got.elements()) * size_of(got.type());
    EXPECT_TRUE(bytes == 0 || std::memcmp(got.memory(), want.numbers.data(), bytes) == 0)
        << want.name;
  }
  expect_broken([&] { file.read("w"); }, {path_, "has no tensor \"w\""});
}

TEST_F(Safetensors, WritingRefusesMistakes) {
  Tensor a({2, 3}), b({2});
  const auto write = [&](const std::vector<NamedTensor>& tensors) {
    write_safetensors(path_, tensors);
  };
  expect_refused([&] { write({{"a", a}, {"a", b}}); }, {"\"a\" comes twice"});
  expect_refused([&] { write({{"__metadata__", a}}); }, {"__metadata__"});
  expect_refused([&] { write({{"a", a.view().swapped(0, 1)}}); }, {"row-major"});
  const Tensor empty;
  expect_refused([&] { write({{"a", empty}}); }, {"no axes"});
  put(path_, "x");
  expect_broken([&] { write({{"a", a}}); }, {path_, "cannot be created", "File exists"});
  EXPECT_EQ(get(path_), "x");
}

TEST_F(Safetensors, LengthsThatCannotBe) {
  refused("", {"0 bytes long", "shorter than 8 bytes"});  // ST-01
  for (std::size_t bytes = 1; bytes < 8; ++bytes)         // ST-02
    refused(std::string(bytes, '\1'), {"shorter than 8 bytes"});
  refused(length_field(0), {"header has 0 bytes"});  // ST-03
  for (const std::uint64_t length : {std::uint64_t{1} << 63, ~std::uint64_t{0}, ~std::uint64_t{7}})
    refused(length_field(length) + "{}", {"header has", "the limit is 100000000"});  // ST-04
  refused(length_field(3) + "{}", {"header has 3 bytes", "only 2"});                 // ST-06
  const auto swapped = __builtin_bswap64(std::uint64_t{2});                          // ST-34
  refused(length_field(swapped) + "{}", {"the limit is 100000000"});
}

TEST_F(Safetensors, HeaderLimit) {  // ST-05, in a file with a hole instead of bytes
  put(path_, length_field(100'000'001));
  ASSERT_EQ(truncate(path_.c_str(), 100'000'009), 0);
  expect_broken([&] { SafetensorsFile file(path_); }, {"100000001 bytes, the limit is 100000000"});
}

TEST_F(Safetensors, HeadersThatAreNotJsonObjects) {
  refused_header("{\"\xFF\":1}", {"JSON at byte", "invalid string"});  // ST-07
  refused_header("{\"\xC0\xAF\":1}", {"invalid string"});
  refused_header(R"({"\ud800":1})", {"surrogate"});
  refused_header("[]", {"the header is a list"});  // ST-08
  refused_header("3", {"the header is number"});
  refused_header("null", {"the header is null"});
  accepted(file_of("  {}  "));                // ST-09
  refused_header("{}x", {"JSON at byte 3"});  // ST-10
  refused_header("{}{}", {"JSON at byte 3"});
  refused_header(std::string(100'000, '['), {"a list"});  // ST-11
  std::string nested;
  for (int i = 0; i < 100'000; ++i) nested += "{\"a\":";
  refused_header(nested, {"unknown key \"a\""});
}

TEST_F(Safetensors, NamesThatComeTwice) {
  const std::string x = "\"x\":" + entry("U8", "[1]", "[0,1]");
  refused_header("{" + x + "," + x + "}", {"tensor \"x\" occurs twice"}, "a");  // ST-12
  refused_header(R"({"x":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                 {"\"x\": dtype occurs twice"});  // ST-13
  refused_header(R"({"x":{"dtype":"U8","shape":[0],"shape":[0],"data_offsets":[0,0]}})",
                 {"shape occurs twice"});
  refused_header(R"({"__metadata__":{"a":"","a":""}})", {"__metadata__ \"a\" occurs twice"});
  refused_header(R"({"__metadata__":{},"__metadata__":{}})", {"__metadata__ occurs twice"});
}

TEST_F(Safetensors, TypesAndShapesThatCannotBe) {
  for (const std::string type : {"F128", "f32", ""})  // ST-14
    refused_header(one(type, "[1]", "[0,4]"), {"unknown dtype \"" + type + "\""}, "abcd");
  const SafetensorsFile file(with(file_of(one("F8_E4M3", "[4]", "[0,4]"), "abcd")));
  expect_broken([&] { file.read("x"); }, {"\"x\" is F8_E4M3, unsupported"});
  refused_header(one("F4", "[3]", "[0,1]"), {"12 bits"}, "a");
  for (const std::string shape : {"[4294967296,4294967296]", "[2097152,2097152,4194304]",
                                  "[4611686018427387904,2]"})  // ST-15
    refused_header(one("F32", shape, "[0,0]"), {"overflows 64 bits"});
  for (const std::string shape : {"-1", "1.5", "1e3", "\"1\"", "true", "null",
                                  "18446744073709551614", "18446744073709551616"})  // ST-16
    refused_header(one("U8", "[2," + shape + "]", "[0,0]"), {"shape has the entry"});
  std::string ones = "[1";
  for (int i = 1; i < 10'000; ++i) ones += ",1";
  refused_header(one("U8", ones + "]", "[0,1]"), {"shape has more than 8 entries"}, "a");  // ST-17
  refused_header(one("U8", "1", "[0,1]"), {"shape is not a list"}, "a");
  refused_header(one("U8", "[[1]]", "[0,1]"), {"a list where none belongs"}, "a");
  refused_header(one("U8", "[{}]", "[0,1]"), {"an object where none belongs"}, "a");
  refused_header(R"({"x":3})", {"entry \"x\" is not an object"});
  refused_header(R"({"x":{"dtype":3}})", {"dtype is not text"});
  refused_header(R"({"x":{"dtype":"U8","shape":[1]}})", {"expected dtype, shape and data_offsets"});
  refused_header(R"({"x":{"more":3}})", {"unknown key \"more\""});
}

TEST_F(Safetensors, EmptyTensorsAndScalars) {
  accepted(file_of(one("F32", "[0]", "[0,0]")));  // ST-18
  accepted(file_of(one("F32", "[4611686018427387904,4,0]", "[0,0]")));
  const float number = 2.5f;
  const std::string bytes(reinterpret_cast<const char*>(&number), 4);
  const SafetensorsFile file(with(file_of(one("F32", "[]", "[0,4]"), bytes)));  // ST-19
  EXPECT_EQ(file.read("x").shape(), Shape{1});
  EXPECT_EQ(file.read("x").data()[0], 2.5f);
  const SafetensorsFile five(with(file_of(one("F32", "[1,1,1,1,1]", "[0,4]"), bytes)));
  expect_broken([&] { five.read("x"); }, {"5 axes, at most 4"});
}

TEST_F(Safetensors, PlacesThatCannotBe) {
  for (const std::string place : {"[4,0]", "[0,5]", "[4,8]", "[0,9223372036854775807]"})  // ST-20
    refused_header(one("U8", "[4]", place), {"data_offsets", "of 4 bytes"}, "abcd");
  refused_header(one("U8", "[4]", "[0,9223372036854775808]"), {"has the entry"}, "abcd");
  std::string many = "{";
  for (int i = 0; i < 1000; ++i)
    many += "\"x" + std::to_string(i) + "\":" + entry("U8", "[4]", "[0,4]") + ",";
  many.back() = '}';
  refused_header(many, {"overlaps"}, "abcd");  // ST-21
  refused_header(
      "{\"a\":" + entry("U8", "[2]", "[0,2]") + ",\"b\":" + entry("U8", "[1]", "[3,4]") + "}",
      {"bytes", "belong to no tensor"}, "abcd");
  refused_header(one("U8", "[3]", "[1,4]"), {"before tensor \"x\" belong to no tensor"}, "abcd");
  refused_header(one("U8", "[3]", "[0,3]"), {"belong to no tensor"}, "abcd");  // ST-22
  refused_header("{}", {"belong to no tensor"}, "a");
  refused_header(one("F32", "[1]", "[0,3]"), {"has 3 bytes", "need 4"}, "abc");  // ST-23
  refused_header(one("F32", "[1]", "[0,5]"), {"has 5 bytes", "need 4"}, "abcde");
  refused_header(one("F32", "[1]", "[0,4,4]"), {"more than 2 entries"}, "abcd");  // ST-24
  refused_header(one("F32", "[1]", "[0]"), {"1 entries, expected 2"}, "abcd");
  refused_header(one("F32", "[1]", "[]"), {"0 entries, expected 2"}, "abcd");
}

TEST_F(Safetensors, NumbersAtOddPlaces) {  // ST-25
  std::string header = one("F32", "[2]", "[0,8]");
  while (header.size() % 2 == 0) header += ' ';
  const float numbers[] = {1.5f, -2.0f};
  const SafetensorsFile file(
      with(file_of(header, {reinterpret_cast<const char*>(numbers), sizeof(numbers)})));
  EXPECT_EQ(file.find("x")->offset % 2, 1);
  EXPECT_EQ(file.read("x").data()[1], -2.0f);
}

TEST_F(Safetensors, MetadataAndNames) {
  refused_header(R"({"__metadata__":{"a":1}})", {"\"a\" is not text"});  // ST-26
  refused_header(R"({"__metadata__":{"a":{}}})", {"an object where none belongs"});
  refused_header(R"({"__metadata__":{"a":[]}})", {"a list where none belongs"});
  refused_header(R"({"__metadata__":3})", {"\"__metadata__\" is not an object"});
  refused_header(R"({"__metadata__":{"a":")" + std::string(50'000'000, 'x') + R"("}})",
                 {"string of 50000000 bytes"});
  for (const std::string name : {R"()", R"(\u0000)", R"(\n)", R"(\u001b[31m)"})  // ST-27
    accepted(file_of("{\"" + name + "\":" + entry("U8", "[0]", "[0,0]") + "}"));
  refused_header("{\"\\u001b[31m\":" + entry("XX", "[0]", "[0,0]") + "}",
                 {R"(tensor "\u001b[31m" has)"});
  refused_header(
      "{\"" + std::string((1 << 20) + 1, 'x') + "\":" + entry("U8", "[0]", "[0,0]") + "}",
      {"string of 1048577 bytes"});
}

TEST_F(Safetensors, AMillionTensorsAreTheLimit) {  // ST-28
  std::string header = "{";
  for (int i = 0; i < 1'500'000; ++i)
    header += "\"" + std::to_string(i) + "\":" + entry("U8", "[0]", "[0,0]") + ",";
  header.back() = '}';
  with(file_of(header));
  const double bytes = static_cast<double>(header.size());
  struct rusage before {
  }, after{};
  getrusage(RUSAGE_SELF, &before);
  const double start = cpu_seconds();
  expect_broken([&] { SafetensorsFile file(path_); }, {"more than 1000000 tensors"});
  const double seconds = cpu_seconds() - start;
  getrusage(RUSAGE_SELF, &after);
  RecordProperty("seconds", std::to_string(seconds));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they take both
  EXPECT_LT(static_cast<double>(after.ru_maxrss - before.ru_maxrss) * 1024, 4 * bytes + 0x1p26);
  EXPECT_LT(seconds, 10);  // about one, with room for slow machines
#endif
}

TEST_F(Safetensors, NonFiniteNumbersAreCounted) {  // ST-29
  Tensor a({4});
  a.data()[1] = std::numeric_limits<float>::quiet_NaN();
  a.data()[3] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(count_non_finite(a), 2);
  EXPECT_EQ(count_non_finite(a.converted(Type::bf16)), 2);
  EXPECT_EQ(count_non_finite(a.converted(Type::f16)), 2);
}

TEST_F(Safetensors, FilesThatChangeOrAreNone) {
  const SafetensorsFile file(with(file_of(one("U8", "[4]", "[0,4]"), "abcd")));
  const SafetensorsFile number(with(file_of(one("F32", "[1]", "[0,4]"), "abcd")));
  ASSERT_EQ(truncate(path_.c_str(), 20), 0);  // ST-30
  expect_broken([&] { number.read("x"); }, {path_, "ends at byte"});
  expect_broken([&] { SafetensorsFile f(folder_.path()); }, {"is a folder"});  // ST-31
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  expect_broken([&] { SafetensorsFile f(pipe); }, {pipe, "is a pipe"});
  expect_broken([] { SafetensorsFile f("/dev/null"); }, {"/dev/null", "is a device"});
  expect_broken([] { SafetensorsFile f("/proc/self/maps"); }, {"shorter than 8 bytes"});
  ASSERT_EQ(symlink("loop", (folder_ / "loop").c_str()), 0);  // ST-32
  expect_broken([&] { SafetensorsFile f(folder_ / "loop"); }, {"loop", "symbolic links"});
  expect_broken([&] { SafetensorsFile f(folder_ / "no"); }, {folder_ / "no", "No such file"});
  const std::string odd = folder_ / "-ä b.safetensors";
  put(odd, file_of("{}"));
  EXPECT_NO_THROW(SafetensorsFile{odd});
}

TEST_F(Safetensors, AHugeHoleIsNotMemory) {  // ST-33
  const Index numbers = Index{1} << 40;      // 4 TiB
  const std::string size = std::to_string(numbers);
  const std::string header =
      one("F32", "[" + size + "]", "[0," + std::to_string(4 * numbers) + "]");
  with(file_of(header));
  if (truncate(path_.c_str(), 8 + static_cast<Index>(header.size()) + 4 * numbers) != 0)
    GTEST_SKIP() << "the file system has no files of 4 TiB";
  const SafetensorsFile file(path_);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers end the program instead of refusing memory";
#endif
  expect_broken([&] { file.read("x"); }, {"\"x\" needs", "bytes of memory"});
}

TEST_F(Safetensors, OtherKindsOfFilesAreRecognised) {
  refused("version https://git-lfs.github.com/spec/v1\n", {"Git LFS pointer"});  // ST-35
  refused("<!DOCTYPE html><html></html>", {"web page"});
  refused("PK\x03\x04 and so on", {"pickle", "by design"});  // ST-36
  refused(std::string("\x80\x02}q\x00(X\x05\x00", 10), {"pickle", "by design"});
  refused("GGUF\x03 and so on", {"GGUF"});
}

}  // namespace
}  // namespace rapt::test
