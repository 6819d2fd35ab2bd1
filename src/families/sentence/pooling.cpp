#include <filesystem>
#include <set>

#include "base/io/check_input.h"
#include "base/io/files.h"
#include "families/sentence/sentence_config.h"
#include "formats/tensors/links.h"
#include "formats/tensors/safetensors_file.h"

namespace rapt::detail {
namespace {

/// Flags for each kind in older files, a word in newer ones.
Pooling::Kind pooling_kind(Fields how) {
  if (how.has("pooling_mode"))
    return how.choice("pooling_mode", {"mean", "cls"}) == "cls" ? Pooling::Kind::cls
                                                                : Pooling::Kind::mean;
  for (const char* other : {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
                            "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"})
    must_be(how, other, false);
  const bool first = how.boolean("pooling_mode_cls_token", false);
  const bool mean = how.boolean("pooling_mode_mean_tokens", false);
  if (first == mean) how.fail("pooling_mode_mean_tokens", "expected the mean or the first token");
  return first ? Pooling::Kind::cls : Pooling::Kind::mean;
}

/// The files of a module must be within the model's folder.
void check_place(const std::string& place, const std::string& path) {
  const std::filesystem::path parts(place);
  bool inside = parts.is_relative() && place.find('\0') == std::string::npos;
  for (const std::filesystem::path& part : parts) inside = inside && part != "..";
  check_input(inside, path, ": the path of a module is ", printable(place),
              ", expected one within the model's folder");
}

Json needed(const FolderFiles& files, const std::string& path) {
  std::optional<Json> found = files(path);
  check_input(found.has_value(), path, ": is missing, but modules.json names it");
  return *std::move(found);
}

/// From the path of a torch class.
Dense::Activation activation_from(Fields& how) {
  const std::string name =
      how.text("activation_function", std::string("torch.nn.modules.activation.Tanh"));
  const std::string word = name.substr(name.rfind('.') + 1);
  if (name.starts_with("torch.nn.") && word == "Identity") return Dense::Activation::identity;
  if (name.starts_with("torch.nn.") && word == "Tanh") return Dense::Activation::tanh;
  how.fail("activation_function",
           "expected torch.nn.modules.linear.Identity or torch.nn.modules.activation.Tanh: nothing "
           "else is computed here");
}

SentenceConfig::Layer layer_from(const std::string& folder, Fields how) {
  SentenceConfig::Layer made{folder, {}, how.boolean("bias", true)};
  made.dense.in_features = how.integer("in_features", size_bounds);
  made.dense.out_features = how.integer("out_features", size_bounds);
  made.dense.activation = activation_from(how);
  // Newer files name its input and output; per-token rows would be a different layer.
  for (const char* name : {"module_input_name", "module_output_name"})
    must_be(how, name, "sentence_embedding");
  how.done();
  return made;
}

/// The parts of a sentence model, in their order.
enum class Module { none, transformer, pooling, dense, normalize };

Module module_of(const std::string& type, const std::string& path) {
  if (type.ends_with(".Transformer")) return Module::transformer;
  if (type.ends_with(".Pooling")) return Module::pooling;
  if (type.ends_with(".Dense")) return Module::dense;
  if (type.ends_with(".Normalize")) return Module::normalize;
  fail_input(path, ": a module of type ", printable(type),
             ", expected Transformer, Pooling, Dense and Normalize: nothing else is computed here");
}

/// Each kind once and behind those before it, but for dense layers, of which there may be several.
void check_order(Module module, Module last, const std::string& type, const std::string& path) {
  const bool behind = module > last || (module == Module::dense && last == Module::dense);
  check_input(behind, path, ": a module of type ", printable(type),
              " at this place, expected the order Transformer, Pooling, Dense, Normalize");
}

/// The folder of a module and its config.json.
struct ModuleFiles {
  std::string folder;
  Fields config;
};

/// Reads the files of modules, each folder once.
struct ModuleList {
  const std::string& folder;  // the model's
  const FolderFiles& files;
  std::string path = folder + "/modules.json";
  std::set<std::filesystem::path> named = {};

  ModuleFiles files_of(const std::string& place) {
    check_place(place, path);
    const std::string inside = folder + "/" + place, config = inside + "/config.json";
    check_input(named.insert(std::filesystem::path(config).lexically_normal()).second, path,
                ": two modules at ", printable(place), ", expected a folder for each");
    return {inside, Fields(needed(files, config), config)};
  }
};

/// modules.json lists the parts of a sentence model.
void read_modules(const std::string& folder, const FolderFiles& files, SentenceConfig& made) {
  constexpr std::size_t most = 16;  // four is what models have
  ModuleList list{folder, files};
  const std::optional<Json> modules = files(list.path);
  if (!modules) return;
  if (!modules->is_array()) fail_input(list.path, ": expected a list of modules");
  check_input(modules->size() <= most, list.path, ": has ", modules->size(),
              " modules, expected at most ", most);
  Module last = Module::none;
  for (const Json& each : *modules) {
    Fields fields(each, list.path);
    const std::string type = fields.text("type"), place = fields.text("path", "");
    const Module module = module_of(type, list.path);
    check_order(module, last, type, list.path);
    last = module;
    if (module == Module::normalize) made.pooling.normalize = true;
    if (module == Module::pooling) made.pooling.kind = pooling_kind(list.files_of(place).config);
    if (module == Module::dense) {
      const ModuleFiles dense = list.files_of(place);
      made.layers.push_back(layer_from(dense.folder, dense.config));
    }
  }
}

SentenceConfig read_sentence_config(const std::string& folder) {
  return sentence_config(folder, [&](const std::string& path) -> std::optional<Json> {
    if (!std::filesystem::exists(path)) return {};
    check_link(folder, path);
    return read_json(path);
  });
}

}  // namespace

SentenceConfig sentence_config(const std::string& folder, const FolderFiles& files) {
  SentenceConfig made;
  read_modules(folder, files, made);
  const std::string transformer = folder + "/sentence_bert_config.json";
  if (std::optional<Json> config = files(transformer)) {
    Fields fields(*std::move(config), transformer);
    if (fields.has("max_seq_length"))
      made.pooling.max_seq_length = fields.integer("max_seq_length", size_bounds);
  }
  return made;
}

Pooling read_pooling(const std::string& folder, Index width, const LoadOptions& options) {
  SentenceConfig config = read_sentence_config(folder);
  for (const SentenceConfig::Layer& layer : config.layers) {
    config.pooling.dense.push_back(read_dense(layer, folder, width, options));
    width = layer.dense.out_features;
  }
  return std::move(config.pooling);
}

double dense_bytes(const std::string& folder) {
  double bytes = 0;
  for (const SentenceConfig::Layer& layer : read_sentence_config(folder).layers) {
    const Weights weights(layer.folder, folder);
    for (const std::string& name : weights.names()) {
      double numbers = 1;
      for (const Index size : weights.find(name)->shape) numbers *= static_cast<double>(size);
      bytes += numbers * sizeof(float);  // in any form
    }
  }
  return bytes;
}

void write_pooling(const std::string& folder, const Pooling& pooling, Type type) {
  Json modules;
  const auto add = [&](const std::string& path, const std::string& kind) {
    const std::size_t index = modules.size();
    modules.push_back({{"idx", index},
                       {"name", std::to_string(index)},
                       {"path", path},
                       {"type", "sentence_transformers.models." + kind}});
  };
  const auto numbered = [&](const char* kind) { return std::to_string(modules.size()) + kind; };
  add("", "Transformer");
  add("1_Pooling", "Pooling");
  std::filesystem::create_directory(folder + "/1_Pooling");
  const bool mean = pooling.kind == Pooling::Kind::mean;
  const Json how{{"pooling_mode_cls_token", !mean}, {"pooling_mode_mean_tokens", mean}};
  replace_file(folder + "/1_Pooling/config.json", how.dump(2) + "\n");
  for (const Dense& layer : pooling.dense) {
    const std::string place = numbered("_Dense");
    write_dense(folder + "/" + place, layer, type);
    add(place, "Dense");
  }
  if (pooling.normalize) add(numbered("_Normalize"), "Normalize");
  replace_file(folder + "/modules.json", modules.dump(2) + "\n");
  if (pooling.max_seq_length)
    replace_file(folder + "/sentence_bert_config.json",
                 Json{{"max_seq_length", *pooling.max_seq_length}}.dump(2) + "\n");
}

}  // namespace rapt::detail
