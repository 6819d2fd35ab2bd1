#pragma once

#include <string>
#include <vector>

namespace rapt::cli {

/// The known word nearest to a mistyped one; "" if none is near.
std::string nearest_word(const std::string& word, const std::vector<std::string>& known);

}  // namespace rapt::cli
