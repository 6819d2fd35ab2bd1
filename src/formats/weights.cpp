#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>

#include "base/input.h"
#include "formats/json.h"
#include "formats/safetensors.h"

namespace rapt {
namespace {

namespace fs = std::filesystem;

constexpr const char* single_name = "model.safetensors";
constexpr const char* index_name = "model.safetensors.index.json";
constexpr std::size_t max_shards = 10'000;

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string lowered(std::string text) {
  for (char& letter : text)
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return text;
}

/// A file name and nothing else: no folder, no drive, nothing that ends a C string.
void check_plain(const std::string& name, const std::string& source) {
  const bool plain = !name.empty() && name != "." && name != ".." &&
                     name.find_first_of(std::string_view("/\\:\0", 4)) == std::string::npos;
  check_input(plain, source, ": weight_map names the file ", printable(name),
              ", expected a plain file name");
}

/// A link may lead within the model's folder or, in the layout of Hugging Face's cache, where
/// snapshots/... links to blobs/..., within the cache of this one model.
void check_link(const std::string& folder, const std::string& path) {
  const fs::path target = fs::canonical(path);
  fs::path home = fs::canonical(folder);
  if (home.parent_path().filename() == "snapshots") home = home.parent_path().parent_path();
  const auto [at, unused] = std::mismatch(home.begin(), home.end(), target.begin(), target.end());
  check_input(at == home.end(), path, ": is a link to ", target.string(), ", outside of ",
              home.string());
}

struct ShardIndex {
  std::map<std::string, std::string> file_of;  // by tensor
  std::vector<std::string> files;              // in ascending order
};

ShardIndex read_index(const std::string& path) {
  const Json index = read_json(path);
  check_input(index.is_object(), path, ": expected an object");
  const auto map = index.find("weight_map");
  check_input(map != index.end() && map->is_object() && !map->empty(), path,
              ": weight_map is missing or empty, expected tensor names and their files");
  ShardIndex result;
  std::set<std::string> files, spellings;
  for (const auto& [tensor, file] : map->items()) {
    check_input(file.is_string(), path, ": weight_map of ", printable(tensor),
                " is not a file name");
    const auto& name = file.get_ref<const std::string&>();
    check_plain(name, path);
    result.file_of.emplace(tensor, name);
    if (!files.insert(name).second) continue;
    check_input(spellings.insert(lowered(name)).second, path, ": file ", printable(name),
                " is listed again with other capitals");
    check_input(files.size() <= max_shards, path, ": more than ", max_shards, " files");
  }
  result.files.assign(files.begin(), files.end());
  return result;
}

/// The index is a list for people; it is compared, never used.
std::string size_notice(const std::string& path, Index bytes) {
  const Json index = read_json(path);
  const auto metadata = index.find("metadata");
  if (metadata == index.end() || !metadata->is_object()) return "";
  const auto total = metadata->find("total_size");
  if (total == metadata->end() || (total->is_number() && *total == bytes)) return "";
  return path + ": total_size is " + (total->is_number() ? total->dump() : "not a number") +
         ", the files have " + std::to_string(bytes) + " bytes";
}

}  // namespace

Weights::Weights(const std::string& path) : path_(path) {
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
    check_input(exists(index), folder, ": has neither ", single_name, " nor ", index_name);
    return open_shards(folder);
  }
  if (exists(index))
    notices_.push_back(folder + ": has both " + single_name + " and " + index_name +
                       "; the single file is used");
  check_link(folder, single);
  files_.emplace_back(single);
  for (const StoredTensor& tensor : files_.front().tensors()) places_.emplace(tensor.name, 0);
}

void Weights::open_shards(const std::string& folder) {
  const std::string source = folder + "/" + index_name;
  const ShardIndex index = read_index(source);
  Index bytes = 0;
  for (const std::string& name : index.files) {
    const std::string path = folder + "/" + name;
    check_input(exists(path), source, ": file ", printable(name), " is missing");
    check_link(folder, path);
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
  const std::string notice = size_notice(source, bytes);
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

}  // namespace rapt
