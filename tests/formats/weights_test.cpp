#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "formats/tensors/safetensors_file.h"
#include "support/temporary_folder.h"

namespace rapt::test {
using namespace detail;
namespace {

namespace fs = std::filesystem;

class ShardedWeights : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::vector<std::string>& names) {
    std::vector<Tensor> tensors(names.size());
    std::vector<NamedTensor> named;
    for (std::size_t i = 0; i < names.size(); ++i) {
      tensors[i] = Tensor({2});
      tensors[i].data()[0] = static_cast<float>(names[i][0]);
      named.push_back({names[i], tensors[i]});
    }
    write_safetensors(folder_ / file, named);
  }
  void index(const std::string& map, const std::string& metadata = R"({"total_size":24})") {
    put(folder_ / "model.safetensors.index.json",
        R"({"metadata":)" + metadata + R"(,"weight_map":)" + map + "}");
  }
  void two_shards() {
    write("a.safetensors", {"a", "b"});
    write("b.safetensors", {"c"});
  }
  void refused(const std::vector<std::string>& words) {
    expect_broken([&] { Weights weights(folder_.path()); }, words);
  }

  static constexpr const char* good =
      R"({"a":"a.safetensors","b":"a.safetensors","c":"b.safetensors"})";
  TemporaryFolder folder_;
};

TEST_F(ShardedWeights, AreReadThroughTheIndex) {
  two_shards();
  index(good);
  const Weights weights(folder_.path());
  EXPECT_EQ(weights.names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(weights.read("c").data()[0], 'c');
  EXPECT_EQ(weights.find("b")->bytes, 8);
  EXPECT_EQ(weights.find("d"), nullptr);
  EXPECT_TRUE(weights.notices().empty());
  expect_broken([&] { weights.read("d"); }, {folder_.path(), "no tensor \"d\""});
  const Weights single(folder_ / "b.safetensors");
  EXPECT_EQ(single.names(), std::vector<std::string>{"c"});
  const TemporaryFolder empty;
  expect_broken([&] { Weights w(empty.path()); }, {"neither model.safetensors nor"});
  put(empty / "pytorch_model.bin", "PK");  // ST-36
  expect_broken([&] { Weights w(empty.path()); }, {"pytorch_model.bin is a pickle", "by design"});
}

TEST_F(ShardedWeights, NamesAreFileNamesAndNothingElse) {  // IX-01
  two_shards();
  for (const std::string name :
       {"../x", "/etc/x", "a/../../b", "a\\\\b", "C:x", "x\\u0000y", "", ".", ".."}) {
    index("{\"a\":\"" + name + "\"}");
    refused({"index.json", "expected a plain file name"});
  }
}

TEST_F(ShardedWeights, LinksStayInsideTheModel) {  // IX-02
  two_shards();
  const TemporaryFolder outside;
  fs::rename(folder_ / "b.safetensors", outside / "b.safetensors");
  fs::create_symlink(outside / "b.safetensors", folder_ / "b.safetensors");
  index(good);
  refused({"b.safetensors", "is a link to", "outside of"});
  // The layout of a cache: snapshots/<revision>/name links to blobs/<hash>.
  const std::string snapshot = outside / "snapshots/1234";
  fs::create_directories(snapshot);
  fs::create_directories(outside / "blobs");
  fs::rename(outside / "b.safetensors", outside / "blobs/b");
  fs::copy_file(folder_ / "a.safetensors", snapshot + "/a.safetensors");
  fs::copy_file(folder_ / "model.safetensors.index.json",
                snapshot + "/model.safetensors.index.json");
  fs::create_symlink("../../blobs/b", snapshot + "/b.safetensors");
  EXPECT_EQ(Weights(snapshot).read("c").data()[0], 'c');
}

TEST_F(ShardedWeights, FilesAndTensorsMustAgree) {
  two_shards();
  index(R"({"a":"a.safetensors","b":"a.safetensors","c":"none.safetensors"})");  // IX-03
  refused({"\"none.safetensors\" is missing"});
  index(R"({"a":"a.safetensors","b":"A.safetensors"})");
  refused({"listed again with other capitals"});
  index(R"({"a":"a.safetensors","b":"b.safetensors","c":"b.safetensors"})");  // IX-04
  refused({"a.safetensors", "has tensor \"b\", which the index puts elsewhere"});
  index(R"({"a":"a.safetensors","b":"a.safetensors","c":"b.safetensors","d":"b.safetensors"})");
  refused({"tensor \"d\" is not in \"b.safetensors\""});
  index(R"({"a":"a.safetensors","c":"b.safetensors"})");
  refused({"has tensor \"b\", which the index does not list"});
}

TEST_F(ShardedWeights, TheIndexIsHostileToo) {
  two_shards();
  index(R"({"a":3})");  // IX-05
  refused({"weight_map of \"a\" is not a file name"});
  index("{}");
  refused({"weight_map is missing or empty"});
  index("[]");
  refused({"weight_map is missing or empty"});
  put(folder_ / "model.safetensors.index.json", "[]");
  refused({"expected an object"});
  for (const std::string size : {"25", "-1", "\"24\"", "1e30"}) {  // IX-06
    index(good, "{\"total_size\":" + size + "}");
    EXPECT_EQ(Weights(folder_.path()).notices().size(), 1u) << size;
  }
  std::string many = "{";  // IX-07
  for (int i = 0; i < 20'000; ++i) {
    const std::string name = std::to_string(i);
    many += "\"" + name + "\":\"" + name + "\",";
  }
  many.back() = '}';
  index(many);
  refused({"more than 10000 files"});
}

TEST_F(ShardedWeights, ASingleFileGoesBeforeAnIndex) {  // IX-08
  two_shards();
  index(good);
  write("model.safetensors", {"single"});
  const Weights weights(folder_.path());
  EXPECT_EQ(weights.names(), std::vector<std::string>{"single"});
  ASSERT_EQ(weights.notices().size(), 1u);
  EXPECT_NE(weights.notices()[0].find("the single file is used"), std::string::npos);
}

}  // namespace
}  // namespace rapt::test
