#include "cli/models/token_ids.h"

#include <algorithm>
#include <sstream>

namespace rapt::cli {

std::optional<std::vector<std::int32_t>> token_ids_in(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == ',' || c == '[' || c == ']'; }, ' ');
  std::istringstream in(text);
  std::vector<std::int32_t> ids;
  while (!(in >> std::ws).eof()) {
    ids.emplace_back();
    if (!(in >> ids.back())) return std::nullopt;
  }
  return ids;
}

}  // namespace rapt::cli
