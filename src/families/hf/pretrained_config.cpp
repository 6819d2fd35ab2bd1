#include <filesystem>

#include "base/io/check_input.h"
#include "base/io/files.h"
#include "families/family_config.h"
#include "formats/tensors/links.h"
#include "text/unicode/characters.h"

namespace rapt::detail {
namespace {

constexpr Bounds<Index> ids = {0, (Index{1} << 31) - 1};

/// Some files write -1 for none.
std::optional<std::int32_t> id_from(Fields& fields, const char* key) {
  if (!fields.has(key)) return {};
  const Index id = fields.integer(key, {-1, ids.highest});
  if (id == -1) return {};
  return static_cast<std::int32_t>(id);
}

/// One id, or a list of them.
std::vector<std::int32_t> ids_from(Fields& fields, const char* key) {
  if (!fields.has(key)) return {};
  std::vector<std::int32_t> made;
  if (!fields.value(key).is_array()) {
    if (const auto id = id_from(fields, key)) made.push_back(*id);
    return made;
  }
  for (const Index id : fields.integers(key, ids)) made.push_back(static_cast<std::int32_t>(id));
  return made;
}

/// The second takes precedence.
ModelTokens merged(ModelTokens first, const ModelTokens& second) {
  if (second.bos) first.bos = second.bos;
  if (!second.eos.empty()) first.eos = second.eos;
  if (second.pad) first.pad = second.pad;
  if (second.decoder_start) first.decoder_start = second.decoder_start;
  return first;
}

/// Drops ids beyond the vocabulary: a small model made from the config of a large one may have
/// some.
void drop_foreign_tokens(FamilyConfig& made, const std::string& path) {
  const auto foreign = [&](const char* key, std::int32_t id) {
    const Index vocab_size = made.config.vocab_size.value_or(0);
    if (id < vocab_size) return false;
    made.warnings.push_back(path + ": " + key + " is " + std::to_string(id) +
                            ", which is ignored: the vocabulary ends at " +
                            std::to_string(vocab_size - 1));
    return true;
  };
  ModelTokens& special = made.special_tokens;
  std::erase_if(special.eos, [&](std::int32_t id) { return foreign("eos_token_id", id); });
  if (special.bos && foreign("bos_token_id", *special.bos)) special.bos.reset();
  if (special.pad && foreign("pad_token_id", *special.pad)) special.pad.reset();
  if (special.decoder_start && foreign("decoder_start_token_id", *special.decoder_start))
    special.decoder_start.reset();
}

}  // namespace

ModelTokens special_tokens_from(Fields& fields) {
  return {id_from(fields, "bos_token_id"), ids_from(fields, "eos_token_id"),
          id_from(fields, "pad_token_id"), id_from(fields, "decoder_start_token_id")};
}

FamilyConfig family_config_from(const Json& object, const std::string& path) {
  Fields fields(object, path);
  const Family& family = family_of(fields.text("model_type"), path);
  FamilyConfig made;
  made.family = &family;
  made.special_tokens = special_tokens_from(fields);
  const std::vector<std::string> architectures =
      fields.texts("architectures", std::vector<std::string>());
  if (!architectures.empty()) made.architecture = architectures.front();
  for (const char* key : {"torch_dtype", "dtype"})
    if (fields.value(key).is_string()) made.dtype = fields.value(key).get<std::string>();
  try {
    made.config = family.read(fields);
    check_config(made.config);
  } catch (const std::invalid_argument& error) {
    fail_input(path, ": ", error.what());
  }
  if (const std::vector<std::string> keys = unknown_keys(fields, family); !keys.empty()) {
    std::string list;
    for (const std::string& key : keys) list += (list.empty() ? "" : ", ") + printable(key).text();
    made.warnings.push_back(path + ": unknown and ignored: " + list);
  }
  return made;
}

void add_generation(FamilyConfig& config, const Json& object, const std::string& path) {
  Fields generation(object, path);
  config.special_tokens = merged(config.special_tokens, special_tokens_from(generation));
}

FamilyConfig read_family_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  FamilyConfig made = family_config_from(read_json(path), path);
  const std::string more = folder + "/generation_config.json";
  if (std::filesystem::exists(more)) add_generation(made, read_json(more), more);
  drop_foreign_tokens(made, folder);
  return made;
}

std::int32_t checked_token(Index id, Index vocab_size, const std::string& where) {
  if (id < 0 || id >= vocab_size) fail_input(where, " is ", id, ", expected 0 to ", vocab_size - 1);
  return static_cast<std::int32_t>(id);
}

void check_config(const ModelConfig& config) {
  config.check();
  // Before tables of that size are allocated.
  check(config.dim() <= 512, "model: a head has ", config.dim(), " numbers, expected at most 512");
  if (config.positions != ModelConfig::Positions::rope) return;
  RopeOptions options;
  options.dim = config.dim();
  options.base = config.rope_base;
  options.scaling = config.rope_scaling;
  const Rope made(options);
}

namespace {

/// The text of an entry {"name": ..., "template": ...}; none if it has another name.
const Json* template_named(const Json& entry, const char* name) {
  if (!entry.is_object() || entry.value("name", Json()) != name) return nullptr;
  const auto text = entry.find("template");
  return text != entry.end() && text->is_string() ? &*text : nullptr;
}

}  // namespace

std::optional<std::string> chat_template_from(const Json& config, const std::string& path,
                                              std::vector<std::string>& warnings) {
  const Json given = config.is_object() ? config.value("chat_template", Json()) : Json();
  if (given.is_null()) return {};
  if (given.is_string()) return readable_template(given.get<std::string>(), path, warnings);
  if (given.is_array())
    for (const Json& entry : given)
      if (const Json* text = template_named(entry, "default"))
        return readable_template(text->get<std::string>(), path, warnings);
  warnings.push_back(path + ": chat_template is ignored, expected a text" +
                     (given.is_array() ? " or one named \"default\" in the list" : ""));
  return {};
}

std::optional<std::string> readable_template(std::string text, const std::string& path,
                                             std::vector<std::string>& warnings) {
  if (text.empty()) return {};
  const std::size_t valid = valid_length(text);
  if (valid == text.size()) return text;
  warnings.push_back(path + ": the chat template is ignored: no UTF-8 at byte " +
                     std::to_string(valid));
  return {};
}

std::optional<std::string> read_chat_template(const std::string& folder,
                                              std::vector<std::string>& warnings) {
  const std::string jinja = folder + "/chat_template.jinja";
  if (std::filesystem::exists(jinja)) {
    check_link(folder, jinja);
    return readable_template(read_file(jinja, Index{1} << 20), jinja, warnings);
  }
  const std::string path = folder + "/tokenizer_config.json";
  if (!std::filesystem::exists(path)) return {};
  check_link(folder, path);
  return chat_template_from(read_json(path), path, warnings);
}

}  // namespace rapt::detail
