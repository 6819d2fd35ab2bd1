#pragma once

#include "rapt/tokenizer.h"

namespace rapt {

/// A tokenizer.json and what lies beside it.
struct TokenizerFolder {
  Tokenizer tokenizer;
  Index max_tokens = 0;  // model_max_length; 0: nothing is said
  std::vector<std::string> notices = {};
};

/// Special tokens are those that tokenizer_config.json and special_tokens_map.json name; where they
/// name none, those that are known by their spelling. Throws std::runtime_error.
TokenizerFolder read_tokenizer_folder(const std::string& folder);

}  // namespace rapt
