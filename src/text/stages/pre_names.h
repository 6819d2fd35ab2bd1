#pragma once

#include <string>

#include "formats/config/json.h"

namespace rapt {

/// What a name in a GGUF file (tokenizer.ggml.pre) says of a byte-level tokenizer, in the parts
/// that a tokenizer.json would have.
struct NamedPreTokenizer {
  Json pre_tokenizer, normalizer, decoder;
  bool whole_words = false;  // a word that is a token is not taken apart
  bool begins = false;       // a text begins with a token, unless the file says otherwise
};

/// An empty name stands for "default". Throws std::runtime_error, beginning with `source`, for a
/// name that is not known.
NamedPreTokenizer pre_tokenizer_of_name(const std::string& name, const std::string& source);

}  // namespace rapt
