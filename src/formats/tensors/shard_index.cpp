#include "formats/tensors/shard_index.h"

#include <cctype>
#include <set>

#include "base/io/check_input.h"

namespace rapt::detail {
namespace {

constexpr std::size_t max_shards = 10'000;

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

}  // namespace

std::string ShardIndex::size_notice(const std::string& source, Index bytes) const {
  if (total_size.is_null() || (total_size.is_number() && total_size == bytes)) return "";
  return source + ": total_size is " +
         (total_size.is_number() ? total_size.dump() : "not a number") + ", the files have " +
         std::to_string(bytes) + " bytes";
}

ShardIndex shard_index_from(const Json& index, const std::string& source) {
  check_input(index.is_object(), source, ": expected an object");
  const auto map = index.find("weight_map");
  check_input(map != index.end() && map->is_object() && !map->empty(), source,
              ": weight_map is missing or empty, expected tensor names and their files");
  ShardIndex result;
  std::set<std::string> files, spellings;
  for (const auto& [tensor, file] : map->items()) {
    check_input(file.is_string(), source, ": weight_map of ", printable(tensor),
                " is not a file name");
    const auto& name = file.get_ref<const std::string&>();
    check_plain(name, source);
    result.file_of.emplace(tensor, name);
    if (!files.insert(name).second) continue;
    check_input(spellings.insert(lowered(name)).second, source, ": file ", printable(name),
                " is listed again with other capitals");
    check_input(files.size() <= max_shards, source, ": more than ", max_shards, " files");
  }
  result.files.assign(files.begin(), files.end());
  const auto metadata = index.find("metadata");
  if (metadata != index.end() && metadata->is_object())
    result.total_size = metadata->value("total_size", Json());
  return result;
}

}  // namespace rapt::detail
