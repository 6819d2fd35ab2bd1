#pragma once

#include "formats/tensors/gguf_header.h"
#include "rapt/models/pretrained.h"

namespace rapt::detail {

Pretrained load_gguf_model(const std::string& path, const LoadOptions& options);
PretrainedInfo gguf_info(const std::string& path);
/// The tokenizer that a GGUF file carries.
Tokenizer gguf_tokenizer(const GgufMetadata& metadata, const std::string& source);
/// A warning about a file that has capitals and does not say whether to keep them; "" if none.
std::string gguf_tokenizer_warning(const GgufMetadata& metadata, const std::string& source);

}  // namespace rapt::detail
