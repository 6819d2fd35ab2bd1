#pragma once

#include "rapt/models/tokenizer.h"

namespace rapt::detail {

/// A tokenizer.json and the files next to it.
struct TokenizerFolder {
  Tokenizer tokenizer;
  std::optional<Index> model_max_length = {};
  std::vector<std::string> warnings = {};
};

/// Special tokens are those that tokenizer_config.json and special_tokens_map.json name; if they
/// name none, those with a usual spelling. Throws std::runtime_error.
TokenizerFolder load_tokenizer_folder(const std::string& folder);

}  // namespace rapt::detail
