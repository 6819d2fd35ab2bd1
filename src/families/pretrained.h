#pragma once

#include "families/stored.h"
#include "formats/gguf_header.h"
#include "rapt/pretrained.h"

namespace rapt {

/// A config as config.json says it, and whose family it is.
struct FamilyConfig {
  const Family* family;
  ModelConfig config;
  ModelTokens special;
};

FamilyConfig read_family_config(const std::string& folder);
/// Tokens that config.json and generation_config.json name.
ModelTokens special_tokens_from(Fields& fields);
/// What sentence-transformers' files beside a model say.
Pooling read_pooling(const std::string& folder);

/// A model from tensors in a family's names. A head that is not stored is left out.
Pretrained model_from(const FamilyConfig& what, const StoredTensors& tensors, WeightForm weights);
/// Of a form in few bits.
Quantization quantization_of(WeightForm form);

Pretrained read_gguf_model(const std::string& path, const LoadOptions& options);
ModelConfig read_gguf_config(const std::string& path);
/// The tokenizer that a GGUF file carries.
Tokenizer gguf_tokenizer(const GgufMetadata& metadata, const std::string& source);

}  // namespace rapt
