#pragma once

#include "families/stored_tensors.h"
#include "formats/tensors/gguf_header.h"
#include "rapt/models/pretrained.h"

namespace rapt::detail {

/// The contents of a config.json.
struct FamilyConfig {
  const Family* family = nullptr;
  ModelConfig config;
  ModelTokens special_tokens;
  std::string architecture = {};  // the class that wrote it, "BertModel"
  std::string dtype = {};         // of the weights, "float32"
  std::vector<std::string> warnings = {};
};

/// From config.json alone. Throws std::runtime_error, beginning with `path`.
FamilyConfig family_config_from(const Json& object, const std::string& path);
/// Tokens of generation_config.json take precedence over those of config.json.
void add_generation(FamilyConfig& config, const Json& object, const std::string& path);
FamilyConfig read_family_config(const std::string& folder);
/// Tokens that config.json and generation_config.json name.
ModelTokens special_tokens_from(Fields& fields);
/// An id of a file as a token. Throws std::runtime_error, beginning with `where`, if it is out of
/// range.
std::int32_t checked_token(Index id, Index vocab_size, const std::string& where);
/// Throws std::invalid_argument if a config is invalid, its RoPE included.
void check_config(const ModelConfig& config);
/// From chat_template.jinja, else tokenizer_config.json. An unusable template gives a warning: the
/// model can write without one. Throws std::runtime_error on a link that leaves the model.
std::optional<std::string> read_chat_template(const std::string& folder,
                                              std::vector<std::string>& warnings);
/// The template, or the one named "default" in a list.
std::optional<std::string> chat_template_from(const Json& tokenizer_config, const std::string& path,
                                              std::vector<std::string>& warnings);
/// The text if it is UTF-8 and not empty; warns about invalid UTF-8.
std::optional<std::string> readable_template(std::string text, const std::string& path,
                                             std::vector<std::string>& warnings);
/// Truncates ids to `longest` by removing some of `text_ids`, which are a part of them; special
/// tokens around them stay. Throws std::invalid_argument if those leave no space for text.
void truncate_ids(std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& text_ids,
                  Index longest);

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

Pretrained load_gguf_model(const std::string& path, const LoadOptions& options);
PretrainedInfo gguf_info(const std::string& path);
/// The tokenizer that a GGUF file carries.
Tokenizer gguf_tokenizer(const GgufMetadata& metadata, const std::string& source);
/// A warning about a file that has capitals and does not say whether to keep them; "" if none.
std::string gguf_tokenizer_warning(const GgufMetadata& metadata, const std::string& source);

}  // namespace rapt::detail
