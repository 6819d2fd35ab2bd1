#pragma once

#include <string>
#include <string_view>

#include "rapt/tokenizer.h"

namespace rapt::cli {

/// Where bytes stop being UTF-8; their count if they never do.
std::size_t letters_end(std::string_view bytes);

/// Throws std::invalid_argument, "WHERE is no text: byte 3 is 0xff, expected UTF-8", unless the
/// tokens are bytes, all 256 of them: other tokenizers leave some out without a word.
void check_letters(const std::string& where, std::string_view text, const Tokenizer& tokenizer);

}  // namespace rapt::cli
