#pragma once

#include <functional>
#include <string>
#include <vector>

#include "formats/config/fields.h"
#include "rapt/models/transformer.h"

namespace rapt::detail {

/// How a tensor of a file is laid out, compared with the rows of our parameter that it fills.
enum class TensorLayout {
  rows,             // the same
  transposed,       // [in, out]: GPT-2
  half_split_rope,  // rows of a head by halves; ours interleave the pairs that RoPE rotates
  by_head,          // queries, keys and values of each head in turn: BLOOM
  grid_rows,        // [rows, 1, width]: Reformer's axial tables
  grid_columns,     // [1, rows, width]
};

/// The names of one of our parameters in files of a family: '*' is the layer's number, '@' the
/// prefix that a model without a head leaves out. Without a suffix the row is for .weight and .bias
/// alike. Several names fill our rows in order.
struct NameRow {
  std::string ours;
  std::vector<std::string> theirs;
  std::vector<TensorLayout> layouts = {};  // of each name; empty: all `rows`
};

/// A tensor with its name, '@' included.
struct DerivedTensor {
  std::string name;
  Tensor numbers;
};

/// A family of pretrained models: how to read its config.json and its tensors.
struct Family {
  const char* type;    // model_type of config.json
  const char* prefix;  // '@' in names
  ModelConfig (*read)(Fields& fields);
  /// The reverse. May leave out what config.json cannot express: the writer reads it back to check.
  Json (*write)(const ModelConfig& config);
  std::vector<NameRow> (*names)(const ModelConfig& config);
  /// Name prefixes, after `prefix`, of tensors without information of their own: tables, copies.
  std::vector<std::string> unused = {};
  /// Tensors that follow from the config but that other libraries expect in a file; null: none.
  std::vector<DerivedTensor> (*derived)(const ModelConfig& config) = nullptr;
  /// Whether models of both RoPE layouts can be written, by moving rows of queries and keys.
  bool any_rope_layout = false;
  /// Keys of config.json that change nothing rapt computes, besides those of every family.
  std::vector<const char*> harmless = {};
  /// Name prefixes, after `prefix`, of weights that only other tasks use.
  std::vector<std::string> other_tasks = {};
  /// Whether a model without token types is written with one that adds zeros, because the family
  /// cannot express none.
  bool blank_type = false;
};

/// All families; the first that can express a model is the one it is saved as.
const std::vector<Family>& families();
/// Throws std::runtime_error, beginning with `source`, if there is no such family.
const Family& family_of(const std::string& type, const std::string& source);

/// A tensor of a file and the rows of our parameter that it holds.
struct StoredPart {
  std::string name;
  TensorLayout layout = TensorLayout::rows;
  Index first = 0, rows = 0;
};
/// The tensors of a family's files that make up a parameter. `prefix` replaces '@'.
std::vector<StoredPart> parts_of(const ModelConfig& config, const std::vector<NameRow>& names,
                                 const std::string& prefix, const std::string& parameter,
                                 const Shape& shape);

// What several families share.

/// The deepest published models have a thousand layers.
inline constexpr Bounds<Index> layer_counts = {1, 4096};
/// Bounds of widths and lengths.
inline constexpr Bounds<Index> size_bounds = {1, Index{1} << 31};

/// What BERT and similar encoders start from.
ModelConfig post_norm_encoder();
/// Activations by their names in config.json.
Activation activation_from(Fields& fields, const char* key, const char* otherwise);
std::string activation_name(Activation activation);
/// The sizes and names that config.json of most families has.
Json common_config_json(const ModelConfig& config, const char* type,
                        const std::string& architecture);
/// Refuses a key that is present with another value, which rapt does not implement.
void must_be(Fields& fields, const char* key, const Json& value);
/// Checks the keys that the family did not read: refuses those that would change the numbers, skips
/// those known to change nothing, and returns the rest.
std::vector<std::string> unknown_keys(Fields& fields, const Family& family);
/// rope_theta and rope_scaling, or rope_parameters.
void read_rope(Fields& fields, ModelConfig& config);
Json rope_json(const ModelConfig& config);

// One for each model_type.
Family gpt2_family();
Family llama_family();
Family mistral_family();
Family qwen2_family();
Family qwen3_family();
Family bert_family();
Family roberta_family();
Family xlm_roberta_family();
Family camembert_family();
Family distilbert_family();
Family roformer_family();
Family longformer_family();
Family t5_family();
Family bloom_family();
Family reformer_family();

}  // namespace rapt::detail
