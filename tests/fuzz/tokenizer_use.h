#pragma once

#include <string_view>

#include "fuzz/target.h"
#include "rapt/tokenizer.h"

namespace rapt::fuzz {

/// Whatever a file has become, ids are tokens, and what was encoded can be decoded.
inline void use_tokenizer(const Tokenizer& tokenizer, std::string_view text) {
  const EncodeOptions special{.special = true};
  const Encoding encoding = tokenizer.encode_pair(text, "bab", special);
  expect(encoding.ids.size() == encoding.types.size(), "ids without types");
  TextStream stream(tokenizer);
  for (const std::int32_t id : encoding.ids) {
    expect(id >= 0 && id < tokenizer.entries(), "an id that is no token");
    stream.add(id);
  }
  stream.finish();
  tokenizer.decode(encoding.ids, {.special = true});
}

}  // namespace rapt::fuzz
