#pragma once

#include "rapt/generate.h"
#include "rapt/pretrained.h"
#include "rapt/train.h"

namespace rapt::cli {

/// A model that can be talked to, wherever it comes from: a run of rapt train, a folder or file of
/// others, a name that a package stands for.
struct OpenedModel {
  Transformer model;
  std::optional<Tokenizer> tokenizer;  // none: a task's numbers
  ModelTokens special;
  bool framed = false;  // texts get the tokens around them that the tokenizer has for that
};
/// Prints what the user should know.
OpenedModel open_model(const std::string& name, const LoadOptions& options);

/// The words of --weights.
LoadOptions load_options(const std::string& weights);
std::vector<std::string> weight_words();

/// A question in the form that chat models were trained with: <|im_start|> and <|im_end|> around
/// what each side says. Throws std::invalid_argument if the tokenizer has no such tokens.
std::vector<std::int32_t> chat_ids(const Tokenizer& tokenizer, const std::string& question);

}  // namespace rapt::cli
