#pragma once

#include "formats/tokenizer_body.h"

namespace rapt {

/// Finds the special tokens among the added ones by the names that tokenizers give them; what is
/// known already stays.
void name_special_tokens(Tokenizer::Body& body);

}  // namespace rapt
