#pragma once

#include <string_view>

#include "fuzz/target.h"
#include "rapt/models/tokenizer.h"

namespace rapt::fuzz {
using namespace detail;

/// Whatever a file has become, ids are tokens, and what was encoded can be decoded.
inline void use_tokenizer(const Tokenizer& tokenizer, std::string_view text) {
  const EncodeOptions special{.parse_special = true};
  const Encoding encoding = tokenizer.encode_pair(text, "bab", special);
  expect(encoding.ids.size() == encoding.type_ids.size(), "ids without type ids");
  DecodeStream stream(tokenizer);
  for (const std::int32_t id : encoding.ids) {
    expect(id >= 0 && id < tokenizer.vocab_size(), "an id that is no token");
    stream.step(id);
  }
  stream.finish();
  tokenizer.decode(encoding.ids, {.skip_special_tokens = false});
}

}  // namespace rapt::fuzz
