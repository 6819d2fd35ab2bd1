#pragma once

#include <string>
#include <string_view>

#include "rapt/models/tokenizer.h"

namespace rapt::cli {

/// How many bytes at the beginning are valid UTF-8.
std::size_t valid_utf8_length(std::string_view bytes);

/// Throws std::invalid_argument, "WHERE is no text: byte 3 is 0xff, expected UTF-8", unless the
/// tokenizer encodes all 256 bytes: others would drop some silently.
void check_utf8(const std::string& where, std::string_view text, const Tokenizer& tokenizer);

}  // namespace rapt::cli
