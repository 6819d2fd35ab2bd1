#include <filesystem>

#include "base/input.h"
#include "families/pretrained.h"

namespace rapt {
namespace {

constexpr Bounds<Index> ids = {0, Index{1} << 31};

std::optional<std::int32_t> id_from(Fields& fields, const char* key) {
  if (!fields.has(key)) return {};
  return static_cast<std::int32_t>(fields.integer(key, {-1, ids.highest}));
}

/// One id, or a list of them.
std::vector<std::int32_t> ids_from(Fields& fields, const char* key) {
  if (!fields.has(key)) return {};
  std::vector<std::int32_t> made;
  if (!fields.value(key).is_array()) return {*id_from(fields, key)};
  for (const Index id : fields.integers(key, ids)) made.push_back(static_cast<std::int32_t>(id));
  return made;
}

Fields fields_of(const std::string& path) { return Fields(read_json(path), path); }

/// What the second says where it says something.
ModelTokens merged(ModelTokens first, const ModelTokens& second) {
  if (second.begin) first.begin = second.begin;
  if (!second.ends.empty()) first.ends = second.ends;
  if (second.padding) first.padding = second.padding;
  if (second.decoder_start) first.decoder_start = second.decoder_start;
  return first;
}

}  // namespace

ModelTokens special_tokens_from(Fields& fields) {
  return {id_from(fields, "bos_token_id"), ids_from(fields, "eos_token_id"),
          id_from(fields, "pad_token_id"), id_from(fields, "decoder_start_token_id")};
}

FamilyConfig read_family_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  Fields fields = fields_of(path);
  const Family& family = family_of(fields.text("model_type"), path);
  FamilyConfig made{&family, family.read(fields), special_tokens_from(fields)};
  try {
    made.config.check();
  } catch (const std::invalid_argument& error) {
    fail_input(path, ": ", error.what());
  }
  const std::string more = folder + "/generation_config.json";
  if (std::filesystem::exists(more)) {
    Fields generation = fields_of(more);
    made.special = merged(made.special, special_tokens_from(generation));
  }
  return made;
}

/// modules.json lists the parts of a sentence model: the Transformer, its pooling, the norm.
Pooling read_pooling(const std::string& folder) {
  Pooling pooling;
  const std::string path = folder + "/modules.json";
  if (!std::filesystem::exists(path)) return pooling;
  const Json modules = read_json(path);
  if (!modules.is_array()) fail_input(path, ": expected a list of modules");
  for (const Json& module : modules) {
    Fields fields(module, path);
    const std::string type = fields.text("type"), place = fields.text("path", "");
    if (type.ends_with(".Normalize")) pooling.normalized = true;
    if (!type.ends_with(".Pooling")) continue;
    Fields how = fields_of(folder + "/" + place + "/config.json");
    const bool first = how.boolean("pooling_mode_cls_token", false);
    const bool mean = how.boolean("pooling_mode_mean_tokens", false);
    if (first == mean)
      fail_input(folder, "/", place, ": expected pooling of the mean or the first");
    pooling.kind = first ? Pooling::Kind::first : Pooling::Kind::mean;
  }
  const std::string transformer = folder + "/sentence_bert_config.json";
  if (std::filesystem::exists(transformer)) {
    Fields fields = fields_of(transformer);
    pooling.max_tokens = fields.integer("max_seq_length", {1, Index{1} << 31}, 0);
  }
  return pooling;
}

}  // namespace rapt
