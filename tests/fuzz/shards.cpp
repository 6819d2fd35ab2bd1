#include <algorithm>

#include "formats/tensors/shard_index.h"
#include "fuzz/target.h"

namespace rapt::fuzz {
using namespace detail;
namespace {

std::vector<std::string> seeds() {
  return {R"({"metadata":{"total_size":24},"weight_map":{"a":"model-00001-of-00002.safetensors",)"
          R"("b":"model-00001-of-00002.safetensors","c":"model-00002-of-00002.safetensors"}})",
          R"({"weight_map":{"a":"b"}})"};
}

std::vector<std::string> words() {
  return json_words(
      {"weight_map", "metadata", "total_size", "..", "a/b", "\\u0000", "A", "a:b", "c\\\\d"});
}

/// Names of files that lead nowhere else.
std::function<void()> open(std::string_view input) {
  const ShardIndex index = shard_index_from(parse_json(input, "fuzz"), "fuzz");
  return [index] {
    expect(!index.files.empty() && index.files.size() <= index.file_of.size(), "another number");
    for (const auto& [tensor, file] : index.file_of)
      expect(std::binary_search(index.files.begin(), index.files.end(), file), "a file not listed");
    for (const std::string& file : index.files)
      expect(!file.empty() && file != "." && file != ".." &&
                 file.find_first_of(std::string_view("/\\:\0", 4)) == std::string::npos,
             "a file elsewhere");
    index.size_notice("fuzz", 24);
  };
}

}  // namespace

const Target shards_target = {"shards", seeds, words, open};

}  // namespace rapt::fuzz
