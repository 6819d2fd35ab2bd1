#pragma once

#include "rapt/generate.h"
#include "rapt/pretrained.h"
#include "rapt/train.h"

namespace rapt::cli {

/// A model wherever it comes from: a run of rapt train, a folder or file of others, a name that a
/// package stands for. Prints what the user should know.
Pretrained open_model(const std::string& name, const LoadOptions& options);

/// The words of --weights.
LoadOptions load_options(const std::string& weights);
std::vector<std::string> weight_words();

/// A question in the form that chat models were trained with: <|im_start|> and <|im_end|> around
/// what each side says, `system` first; without one, what the model's template says there. Throws
/// std::invalid_argument if the tokenizer has no such tokens.
std::vector<std::int32_t> chat_ids(const Pretrained& loaded, const std::string& question,
                                   const std::optional<std::string>& system);

}  // namespace rapt::cli
