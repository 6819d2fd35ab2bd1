#pragma once

#include "families/stored.h"
#include "formats/tensors/gguf_header.h"
#include "rapt/pretrained.h"

namespace rapt {

/// A config as config.json says it, and whose family it is.
struct FamilyConfig {
  const Family* family = nullptr;
  ModelConfig config;
  ModelTokens special;
  std::string architecture = {};  // the class that wrote it, "BertModel"
  std::string dtype = {};         // what it says that weights are, "float32"
  std::vector<std::string> notices = {};
};

/// What config.json alone says. Throws std::runtime_error, beginning with `path`.
FamilyConfig family_config_from(const Json& object, const std::string& path);
/// What generation_config.json says of tokens goes before what config.json does.
void add_generation(FamilyConfig& config, const Json& object, const std::string& path);
FamilyConfig read_family_config(const std::string& folder);
/// Tokens that config.json and generation_config.json name.
ModelTokens special_tokens_from(Fields& fields);
/// An id of a file as a token. Throws std::runtime_error, beginning with `where`, if there is none.
std::int32_t checked_token(Index id, Index vocabulary, const std::string& where);
/// Throws std::invalid_argument if a config makes no sense, its rope included.
void check_config(const ModelConfig& config);
/// chat_template.jinja, or what tokenizer_config.json says. What cannot be used is left out and
/// told: a model writes without a template too. Throws std::runtime_error on a link that leaves the
/// model.
std::string read_chat_template(const std::string& folder, std::vector<std::string>& notices);
/// The template, or the one named default of a list.
std::string chat_template_from(const Json& tokenizer_config, const std::string& path,
                               std::vector<std::string>& notices);
/// The text if it is UTF-8; "" if not, which is told.
std::string readable_template(std::string text, const std::string& path,
                              std::vector<std::string>& notices);
/// Cuts ids to the longest that are wanted, out of those `inside` what frames a text. Throws
/// std::invalid_argument if the frame leaves no room.
void cut_framed(std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& inside,
                Index longest);

/// The last layer that a config speaks of is there: asked before a table of all layers is made.
/// Throws std::runtime_error.
void check_layers(const ModelConfig& config, const std::vector<NameRow>& names,
                  const std::string& prefix, const StoredTensors& tensors);
/// Every parameter's tensors are there and have the right shapes. Throws std::runtime_error.
void check_tensors(const ModelConfig& config, const std::vector<NameRow>& names,
                   const std::string& prefix, const StoredTensors& tensors);
/// The weights in a form, and what is beside them, are no more than the machine's memory: asked
/// before any is taken. Throws std::runtime_error.
void check_memory(const StoredTensors& tensors, WeightForm form);
/// A model from tensors in a family's names. A head that is not stored is left out.
Pretrained model_from(const FamilyConfig& what, const StoredTensors& tensors, WeightForm weights);
/// Whether a parameter is a matrix of a product, or the embedding: what few bits are for.
bool multiplied(const std::string& name);
/// Reads a parameter in the form that is wanted.
void take_weight(Parameter& parameter, const Shape& shape, const StoredTensors& tensors,
                 const std::vector<StoredPart>& parts, const ModelConfig& config, WeightForm form);

Pretrained read_gguf_model(const std::string& path, const LoadOptions& options);
PretrainedOutline outline_gguf(const std::string& path);
/// The tokenizer that a GGUF file carries.
Tokenizer gguf_tokenizer(const GgufMetadata& metadata, const std::string& source);
/// What may be wrong with it: files that do not say whether they keep capitals, and have some.
std::string gguf_tokenizer_notice(const GgufMetadata& metadata, const std::string& source);

}  // namespace rapt
