#pragma once

#include <map>
#include <string>
#include <vector>

#include "formats/config/json.h"

namespace rapt::detail {

/// model.safetensors.index.json: which file a tensor is in.
struct ShardIndex {
  std::map<std::string, std::string> file_of;  // by tensor
  std::vector<std::string> files;              // in ascending order, plain names
  Json total_size;                             // as it is in the file; null: missing

  /// A warning if the size of the files differs from the index; else empty. The
  /// size is for people; it is compared, never used.
  std::string size_notice(const std::string& source, Index bytes) const;
};

/// Throws std::runtime_error, beginning with `source`.
ShardIndex shard_index_from(const Json& index, const std::string& source);

}  // namespace rapt::detail
