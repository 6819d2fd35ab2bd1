#pragma once

#include "families/family_config.h"
#include "families/stored_tensors.h"

namespace rapt::detail {

/// Checks that the files have the last layer of a config, before a table of all layers is made.
/// Throws std::runtime_error.
void check_layers(const ModelConfig& config, const std::vector<NameRow>& names,
                  const std::string& prefix, const StoredTensors& tensors);
/// Checks that every parameter's tensors exist with the right shapes. Throws std::runtime_error.
void check_tensors(const ModelConfig& config, const std::vector<NameRow>& names,
                   const std::string& prefix, const StoredTensors& tensors);
/// Checks that the weights fit into the machine's memory, before any is allocated. Throws
/// std::runtime_error.
void check_memory(const StoredTensors& tensors, WeightType weight_type);
/// A model from the tensors of a family. A head that is not stored is left out.
Pretrained model_from(const FamilyConfig& what, const StoredTensors& tensors,
                      WeightType weight_type);
/// Whether a parameter is a weight matrix or the embedding: what may be quantized.
bool multiplied(const std::string& name);
void load_weight(Parameter& parameter, const Shape& shape, const StoredTensors& tensors,
                 const std::vector<StoredPart>& parts, const ModelConfig& config,
                 WeightType weight_type);

}  // namespace rapt::detail
