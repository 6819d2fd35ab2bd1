#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tensors/safetensors_file.h"

namespace rapt::detail {

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // in ascending order of names
  std::map<std::string, std::string> metadata;
};

/// Reads and checks a header of which `source` has `data_bytes` bytes of numbers after it. Offsets
/// of the result count from `data_offset`.
SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& source,
                                           Index data_offset, Index data_bytes);

}  // namespace rapt::detail
