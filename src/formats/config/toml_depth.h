#pragma once

#include <string>
#include <string_view>

namespace rapt::detail {

/// Throws std::runtime_error with the line at which a TOML text nests tables and arrays deeper than
/// toml_depth: by brackets, by dots in keys and headers, or by all of them together. toml++ counts
/// brackets alone, and takes apart what it has read by recursion.
///
/// The text may be anything. What is no TOML may pass here, and is refused by its parser.
void check_toml_depth(std::string_view text, const std::string& source);

}  // namespace rapt::detail
