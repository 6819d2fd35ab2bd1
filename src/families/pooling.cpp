#include <filesystem>

#include "base/input.h"
#include "families/pretrained.h"

namespace rapt {
namespace {

/// Flags for each kind in older files, a word in newer ones.
Pooling::Kind pooling_kind(Fields how) {
  if (how.has("pooling_mode"))
    return how.choice("pooling_mode", {"mean", "cls"}) == "cls" ? Pooling::Kind::first
                                                                : Pooling::Kind::mean;
  for (const char* other : {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
                            "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"})
    must_be(how, other, false);
  const bool first = how.boolean("pooling_mode_cls_token", false);
  const bool mean = how.boolean("pooling_mode_mean_tokens", false);
  if (first == mean) how.fail("pooling_mode_mean_tokens", "expected the mean or the first token");
  return first ? Pooling::Kind::first : Pooling::Kind::mean;
}

/// Where the files of a module are: within the model's folder.
void check_place(const std::string& place, const std::string& path) {
  const std::filesystem::path parts(place);
  bool inside = parts.is_relative() && place.find('\0') == std::string::npos;
  for (const std::filesystem::path& part : parts) inside = inside && part != "..";
  check_input(inside, path, ": the path of a module is ", printable(place),
              ", expected one within the model's folder");
}

Json needed(const FolderFiles& files, const std::string& path) {
  std::optional<Json> found = files(path);
  check_input(found.has_value(), path, ": is missing, modules.json speaks of it");
  return *std::move(found);
}

}  // namespace

/// modules.json lists the parts of a sentence model: the Transformer, its pooling, the norm.
Pooling pooling_from(const std::string& folder, const FolderFiles& files) {
  Pooling pooling;
  const std::string path = folder + "/modules.json";
  const std::optional<Json> modules = files(path);
  if (!modules) return pooling;
  if (!modules->is_array()) fail_input(path, ": expected a list of modules");
  for (const Json& module : *modules) {
    Fields fields(module, path);
    const std::string type = fields.text("type"), place = fields.text("path", "");
    if (type.ends_with(".Transformer")) continue;
    if (type.ends_with(".Normalize")) {
      pooling.normalized = true;
    } else if (type.ends_with(".Pooling")) {
      check_place(place, path);
      const std::string config = folder + "/" + place + "/config.json";
      pooling.kind = pooling_kind(Fields(needed(files, config), config));
    } else {
      fail_input(path, ": a module of type ", printable(type),
                 ", expected Transformer, Pooling and Normalize: nothing else is computed here");
    }
  }
  const std::string transformer = folder + "/sentence_bert_config.json";
  if (std::optional<Json> config = files(transformer)) {
    Fields fields(*std::move(config), transformer);
    pooling.max_tokens = fields.integer("max_seq_length", {1, Index{1} << 31}, 0);
  }
  return pooling;
}

Pooling read_pooling(const std::string& folder) {
  return pooling_from(folder, [](const std::string& path) -> std::optional<Json> {
    if (!std::filesystem::exists(path)) return {};
    return read_json(path);
  });
}

}  // namespace rapt
