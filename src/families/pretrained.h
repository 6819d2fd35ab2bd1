#pragma once

#include "families/stored.h"
#include "rapt/pretrained.h"

namespace rapt {

/// A config as config.json says it, and whose family it is.
struct FamilyConfig {
  const Family* family;
  ModelConfig config;
  SpecialTokens special;
};

FamilyConfig read_family_config(const std::string& folder);
/// Tokens that config.json and generation_config.json name.
SpecialTokens special_tokens_from(Fields& fields);
/// What sentence-transformers' files beside a model say.
Pooling read_pooling(const std::string& folder);

/// A model from tensors in a family's names. A head that is not stored is left out.
Pretrained model_from(const FamilyConfig& what, const StoredTensors& tensors);

}  // namespace rapt
