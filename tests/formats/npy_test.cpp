#include "formats/tensors/npy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "support/folder.h"

namespace rapt::test {
namespace {

template <class T>
std::string bytes_of(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

/// A file of version 1, 2 or 3 with the given dictionary.
std::string npy(const std::string& dictionary, const std::string& data, char version = 1) {
  std::string out = "\x93NUMPY";
  out += version;
  out += '\0';
  const auto length = static_cast<std::uint32_t>(dictionary.size());
  out.append(reinterpret_cast<const char*>(&length), version == 1 ? 2 : 4);
  return out + dictionary + data;
}
std::string dictionary(const std::string& type, const std::string& order,
                       const std::string& shape) {
  return "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }   \n";
}

/// One entry of an archive; what is not given is right.
struct ZipEntry {
  std::string name, data;
  std::uint16_t method = 0, flags = 0;
  std::uint32_t offset_error = 0, size_error = 0;
};
std::string zip(const std::vector<ZipEntry>& entries, const std::string& comment = "") {
  const auto number = [](auto x) {
    return std::string(reinterpret_cast<const char*>(&x), sizeof x);
  };
  std::string out, list;
  for (const ZipEntry& e : entries) {
    const auto offset = static_cast<std::uint32_t>(out.size()) + e.offset_error;
    const auto size = static_cast<std::uint32_t>(e.data.size()) + e.size_error;
    const auto name = static_cast<std::uint16_t>(e.name.size());
    // numpy writes a local header with 20 bytes of sizes of 64 bits, which nobody needs here.
    out += "PK\3\4" + std::string(22, '\xFF') + number(name) + number(std::uint16_t{20}) + e.name +
           std::string(20, 'x') + e.data;
    list += "PK\1\2" + std::string(4, '\0') + number(e.flags) + number(e.method) +
            std::string(8, '\0') + number(size) + number(size) + number(name) +
            std::string(12, '\0') + number(offset) + e.name;
  }
  const auto count = static_cast<std::uint16_t>(entries.size());
  return out + list + "PK\5\6" + std::string(4, '\0') + number(count) + number(count) +
         number(static_cast<std::uint32_t>(list.size())) +
         number(static_cast<std::uint32_t>(out.size())) +
         number(static_cast<std::uint16_t>(comment.size())) + comment;
}

class Npy : public ::testing::Test {
 protected:
  NpyFile open(const std::string& bytes) const {
    put(path_, bytes);
    return NpyFile(path_);
  }
  void refused(const std::string& bytes, std::vector<std::string> words) const {
    words.push_back(path_);
    expect_broken([&] { open(bytes); }, words);
  }
  void refused_dictionary(const std::string& text, const std::vector<std::string>& words) const {
    refused(npy(text, std::string(16, '\0')), words);
  }
  void refused_zip(const std::string& bytes, std::vector<std::string> words) const {
    words.push_back(path_);
    put(path_, bytes);
    expect_broken([&] { open_npz(path_); }, words);
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "a.npy";
};

const std::string four = dictionary("<f4", "False", "(4,)");
const std::string sixteen(16, '\0');

TEST_F(Npy, NumbersOfEveryTypeAndVersion) {
  for (const char version : {'\1', '\2', '\3'}) {
    const Tensor a = open(npy(four, bytes_of<float>({1, -2, 3.5, INFINITY}), version)).read();
    EXPECT_EQ(a.shape(), Shape{4});
    EXPECT_EQ(a.data()[2], 3.5f);
    EXPECT_EQ(a.data()[3], INFINITY);
  }
  const Tensor b =
      open(npy(dictionary("<f8", "False", "(1, 2)"), bytes_of<double>({0.1, 1e300}))).read();
  EXPECT_EQ(b.shape(), (Shape{1, 2}));
  EXPECT_EQ(b.data()[0], 0.1f);
  EXPECT_EQ(b.data()[1], INFINITY);
  const Tensor c =
      open(npy(dictionary("<f2", "False", "()"), bytes_of<std::uint16_t>({F16(-2).bits}))).read();
  EXPECT_EQ(c.shape(), Shape{1});
  EXPECT_EQ(c.data()[0], -2.f);
  EXPECT_EQ(
      open(npy(dictionary("<i4", "False", "(2)"), bytes_of<std::int32_t>({-7, 9}))).read_integers(),
      (std::vector<Index>{-7, 9}));
  EXPECT_EQ(open(npy(dictionary("<i8", "False", "(1,1,1,1)"), bytes_of<std::int64_t>({INT64_MIN})))
                .read_integers(),
            (std::vector<Index>{INT64_MIN}));
  EXPECT_EQ(open(npy(dictionary("<f4", "False", "(3, 0)"), "")).read().elements(), 0);
}

TEST_F(Npy, TheFirstAxisMayRunFastest) {
  std::vector<float> numbers;
  for (int k = 0; k < 4; ++k)
    for (int j = 0; j < 3; ++j)
      for (int i = 0; i < 2; ++i) numbers.push_back(static_cast<float>(100 * i + 10 * j + k));
  const Tensor a = open(npy(dictionary("<f4", "True", "(2, 3, 4)"), bytes_of(numbers))).read();
  EXPECT_EQ(a.shape(), (Shape{2, 3, 4}));
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 4; ++k)
        EXPECT_EQ(a.data()[(i * 3 + j) * 4 + k], static_cast<float>(100 * i + 10 * j + k));
}

TEST_F(Npy, ATypeIsNotTakenForAnother) {
  const NpyFile whole = open(npy(dictionary("<i4", "False", "(4,)"), sixteen));
  expect_broken([&] { whole.read(); }, {path_, "whole numbers"});
  const NpyFile real = open(npy(four, sixteen));
  expect_broken([&] { real.read_integers(); }, {path_, "not whole"});
}

TEST_F(Npy, FilesThatCannotBe) {
  refused("", {"no .npy file"});
  refused("PK\3\4 an archive", {"no .npy file"});
  const std::string good = npy(four, sixteen);
  for (std::size_t length = 0; length < good.size(); ++length) refused(good.substr(0, length), {});
  refused(good + "x", {"17 bytes of numbers", "need 16"});
  refused(npy(four, sixteen, 4), {"version 4.0"});
  refused(npy(four, sixteen, 0), {"version 0.0"});
  std::string wrong = good;
  wrong[7] = 1;
  refused(wrong, {"version 1.1"});
  refused(std::string("\x93NUMPY\2\0\xFF\xFF\xFF\xFF", 12) + four, {"4294967295 bytes, the limit"});
}

TEST_F(Npy, DictionariesThatCannotBe) {
  refused_dictionary("", {"expected {"});
  refused_dictionary("{'descr': '<f4'}", {"expected descr, fortran_order and shape"});
  refused_dictionary("{'descr': '<f4', 'descr': '<f4'}", {"\"descr\" occurs twice"});
  refused_dictionary("{'descr: 1", {"a text does not end"});
  refused_dictionary("{'other': 1}", {"unknown key \"other\""});
  refused_dictionary(four + "}", {"something follows"});
  refused_dictionary(dictionary("|O", "False", "(4,)"), {"Python objects"});
  for (const std::string type : {">f4", "<c8", "|S3", "<u4", "float32", ""})
    refused_dictionary(dictionary(type, "False", "(4,)"), {"are not supported", type});
  refused_dictionary(dictionary("<f4", "0", "(4,)"), {"neither True nor False"});
  for (const std::string shape : {"(-1,)", "(4.5,)", "(9223372036854775808,)", "(,)", "(4 4)"})
    refused_dictionary(dictionary("<f4", "False", shape), {"byte"});
  refused_dictionary(dictionary("<f4", "False", "(1,1,1,1,4)"), {"more than 4 axes"});
  refused_dictionary(dictionary("<f4", "False", "(4294967296, 4294967296)"), {"overflows"});
  refused_dictionary(dictionary("<f4", "False", "(4611686018427387904,)"), {"overflows"});
  refused_dictionary(dictionary("<f4", "False", "(5,)"), {"16 bytes of numbers", "need 20"});
}

TEST_F(Npy, ArchivesHoldArraysByName) {
  const std::string other = npy(dictionary("<i8", "False", "(1,)"), bytes_of<std::int64_t>({77}));
  put(path_, zip({{"x.npy", npy(four, bytes_of<float>({1, 2, 3, 4}))}, {"ids.npy", other}}, "hi"));
  const std::vector<NpyFile> arrays = open_npz(path_);
  ASSERT_EQ(arrays.size(), 2u);
  EXPECT_EQ(arrays[0].name(), "x");
  EXPECT_EQ(arrays[0].read().data()[3], 4.f);
  EXPECT_EQ(arrays[1].name(), "ids");
  EXPECT_EQ(arrays[1].read_integers(), std::vector<Index>{77});
  put(path_, zip({}));
  EXPECT_TRUE(open_npz(path_).empty());
}

TEST_F(Npy, ArchivesThatCannotBe) {
  const std::string array = npy(four, sixteen);
  refused_zip("", {"no .npz archive"});
  refused_zip(array, {"no .npz archive"});
  const std::string good = zip({{"x.npy", array}});
  for (std::size_t length = 0; length < good.size(); ++length)
    refused_zip(good.substr(0, length), {});
  refused_zip(zip({{"x.npy", array, 8}}), {"\"x.npy\" is compressed (method 8)", "savez"});
  refused_zip(zip({{"x.npy", array, 0, 1}}), {"encrypted"});
  refused_zip(zip({{"x.npy", array, 0, 0, 5}}), {"does not begin here"});
  refused_zip(zip({{"x.npy", array, 0, 0, 1u << 30}}), {"beyond the arrays"});
  refused_zip(zip({{"x.npy", array, 0, 0, 0, 1}}), {"beyond the arrays"});
  refused_zip(zip({{"x.npy", array}, {"x.npy", array}}), {"\"x\" occurs twice"});
  refused_zip(zip({{"x.npy", "text"}}), {"array \"x\"", "no .npy file"});
}

}  // namespace
}  // namespace rapt::test
