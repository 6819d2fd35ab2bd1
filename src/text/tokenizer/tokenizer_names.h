#pragma once

#include <array>

#include "text/tokenizer/tokenizer_impl.h"

namespace rapt {

/// What a special token is called in files beside a tokenizer.json.
struct TokenRole {
  const char* key;
  std::optional<std::int32_t> SpecialTokens::*id;
};
inline constexpr std::array token_roles = {
    TokenRole{"unk_token", &SpecialTokens::unknown},
    TokenRole{"bos_token", &SpecialTokens::begin},
    TokenRole{"eos_token", &SpecialTokens::end},
    TokenRole{"pad_token", &SpecialTokens::padding},
    TokenRole{"cls_token", &SpecialTokens::classify},
    TokenRole{"sep_token", &SpecialTokens::separator},
    TokenRole{"mask_token", &SpecialTokens::mask},
};

/// Finds the special tokens among the added ones by the names that tokenizers give them; what is
/// known already stays.
void name_special_tokens(Tokenizer::Body& body);

}  // namespace rapt
