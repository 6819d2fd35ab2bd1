#pragma once

#include <string>

#include "formats/config/json.h"

namespace rapt::detail {

/// A byte-level tokenizer by its name in a GGUF file (tokenizer.ggml.pre), in the parts that a
/// tokenizer.json would have.
struct NamedPreTokenizer {
  Json pre_tokenizer, normalizer, decoder;
  bool ignore_merges = false;  // a word that is a token stays whole
  bool adds_bos = false;       // unless the file says otherwise
};

/// An empty name means "default". Throws std::runtime_error, beginning with `source`, for an
/// unknown name.
NamedPreTokenizer pre_tokenizer_of_name(const std::string& name, const std::string& source);

}  // namespace rapt::detail
