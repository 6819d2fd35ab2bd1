#pragma once

#include <optional>
#include <string>
#include <vector>

#include "families/family.h"
#include "formats/config/fields.h"
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

}  // namespace rapt::detail
