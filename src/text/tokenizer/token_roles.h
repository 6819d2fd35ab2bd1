#pragma once

#include <array>

#include "text/tokenizer/tokenizer_impl.h"

namespace rapt::detail {

/// The key of a special token in files next to a tokenizer.json.
struct TokenRole {
  const char* key;
  std::optional<std::int32_t> SpecialTokens::*id;
};
inline constexpr std::array token_roles = {
    TokenRole{"unk_token", &SpecialTokens::unk},   TokenRole{"bos_token", &SpecialTokens::bos},
    TokenRole{"eos_token", &SpecialTokens::eos},   TokenRole{"pad_token", &SpecialTokens::pad},
    TokenRole{"cls_token", &SpecialTokens::cls},   TokenRole{"sep_token", &SpecialTokens::sep},
    TokenRole{"mask_token", &SpecialTokens::mask},
};

/// Finds the special tokens among the added ones by their usual names; those already set stay.
void assign_special_tokens(Tokenizer::Impl& impl);

}  // namespace rapt::detail
