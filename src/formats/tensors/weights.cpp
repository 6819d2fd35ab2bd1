#include <filesystem>

#include "base/io/check_input.h"
#include "formats/config/json.h"
#include "formats/tensors/links.h"
#include "formats/tensors/safetensors_file.h"
#include "formats/tensors/shard_index.h"

namespace rapt::detail {
namespace {

namespace fs = std::filesystem;

constexpr const char* single_name = "model.safetensors";
constexpr const char* index_name = "model.safetensors.index.json";

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

}  // namespace

Weights::Weights(const std::string& path) : Weights(path, path) {}

Weights::Weights(const std::string& path, const std::string& model_folder)
    : path_(path), model_folder_(model_folder) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    open_folder(path);
    return;
  }
  files_.emplace_back(path);
  for (const StoredTensor& tensor : files_.front().tensors()) places_.emplace(tensor.name, 0);
}

void Weights::open_folder(const std::string& folder) {
  const std::string single = folder + "/" + single_name, index = folder + "/" + index_name;
  if (!exists(single)) {
    const bool pickled = exists(folder + "/pytorch_model.bin");
    check_input(
        exists(index), folder, ": has neither ", single_name, " nor ", index_name,
        pickled ? "; pytorch_model.bin is a pickle, not supported by design: it can run code" : "");
    return open_shards(folder);
  }
  if (exists(index))
    notices_.push_back(folder + ": has both " + single_name + " and " + index_name +
                       "; the single file is used");
  check_link(model_folder_, single);
  files_.emplace_back(single);
  for (const StoredTensor& tensor : files_.front().tensors()) places_.emplace(tensor.name, 0);
}

void Weights::open_shards(const std::string& folder) {
  const std::string source = folder + "/" + index_name;
  const ShardIndex index = shard_index_from(read_json(source), source);
  Index bytes = 0;
  for (const std::string& name : index.files) {
    const std::string path = folder + "/" + name;
    check_input(exists(path), source, ": file ", printable(name), " is missing");
    check_link(model_folder_, path);
    files_.emplace_back(path);
    for (const StoredTensor& tensor : files_.back().tensors()) {
      const auto listed = index.file_of.find(tensor.name);
      check_input(listed != index.file_of.end() && listed->second == name, path, ": has tensor ",
                  printable(tensor.name), ", which the index ",
                  listed == index.file_of.end() ? "does not list" : "puts elsewhere");
      places_.emplace(tensor.name, files_.size() - 1);
      bytes += tensor.bytes;
    }
  }
  for (const auto& [tensor, file] : index.file_of)
    check_input(places_.contains(tensor), source, ": tensor ", printable(tensor), " is not in ",
                printable(file));
  const std::string notice = index.size_notice(source, bytes);
  if (!notice.empty()) notices_.push_back(notice);
}

std::vector<std::string> Weights::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : places_) names.push_back(name);
  return names;
}

const StoredTensor* Weights::find(std::string_view name) const {
  const auto place = places_.find(name);
  return place == places_.end() ? nullptr : files_[place->second].find(name);
}

Tensor Weights::read(std::string_view name) const {
  const auto place = places_.find(name);
  check_input(place != places_.end(), path_, ": has no tensor ", printable(name));
  return files_[place->second].read(name);
}

}  // namespace rapt::detail
