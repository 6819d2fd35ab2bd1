#pragma once

#include <functional>
#include <string>
#include <vector>

#include "formats/config/fields.h"
#include "rapt/model.h"

namespace rapt {

/// How a tensor of a file lies against the rows of ours that it fills.
enum class Lie {
  rows,          // as ours
  transposed,    // [in, out]: GPT-2
  turned,        // rows of heads that rope turns: ours pair by pair, theirs by halves
  by_head,       // queries, keys and values of each head one below the other: BLOOM
  grid_rows,     // [rows, 1, width]: Reformer's axial tables
  grid_columns,  // [1, rows, width]
};

/// What one of our parameters is called in files of a family: '*' is the number of the layer, '@'
/// the prefix that a model without a head leaves out. Without an ending the row holds for .weight
/// and .bias alike. Several names fill our rows one after the other.
struct NameRow {
  std::string ours;
  std::vector<std::string> theirs;
  std::vector<Lie> lies = {};  // of each name; empty: all rows
};

/// A tensor with its name, '@' included.
struct DerivedTensor {
  std::string name;
  Tensor numbers;
};

/// A family of models that others train: how its config.json and its tensors read.
struct Family {
  const char* type;    // model_type of config.json
  const char* prefix;  // what '@' stands for
  ModelConfig (*read)(Fields& fields);
  /// The reverse. May leave out what the config cannot say: whoever writes reads it back.
  Json (*write)(const ModelConfig& config);
  std::vector<NameRow> (*names)(const ModelConfig& config);
  /// Beginnings of names, after the prefix, of tensors that say nothing new: tables, copies.
  std::vector<std::string> unused = {};
  /// Tensors that follow from the config, which others expect in a file; null: none.
  std::vector<DerivedTensor> (*derived)(const ModelConfig& config) = nullptr;
  /// Whether its names hold for both layouts of rope, rows of queries and keys being moved.
  bool turns = false;
  /// Keys of config.json that change nothing that is computed here, beside those that every family
  /// has.
  std::vector<const char*> harmless = {};
  /// Beginnings of names, after the prefix, of weights that only other tasks compute with.
  std::vector<std::string> other_tasks = {};
  /// Whether a model without token types is written with one that adds nothing: others have no
  /// words for none.
  bool blank_type = false;
};

/// All there are, the likeliest first.
const std::vector<Family>& families();
/// Throws std::runtime_error, beginning with `source`, if there is no such family.
const Family& family_of(const std::string& type, const std::string& source);

/// A part of one of our parameters: a tensor of a file and the rows of ours that it holds.
struct StoredPart {
  std::string name;
  Lie lie = Lie::rows;
  Index first = 0, rows = 0;
};
/// Where a parameter of a config stands in files of a family. `prefix` is what '@' becomes.
std::vector<StoredPart> parts_of(const ModelConfig& config, const std::vector<NameRow>& names,
                                 const std::string& prefix, const std::string& parameter,
                                 const Shape& shape);

// What several families share.

/// Of layers; the deepest models that were published have a thousand.
inline constexpr Bounds<Index> layer_counts = {1, 4096};

/// Activations by the names that config.json has for them.
Activation activation_from(Fields& fields, const char* key, const char* otherwise);
std::string activation_name(Activation activation);
/// Refuses a key that is there and has another value: what it asks for does not exist here.
void must_be(Fields& fields, const char* key, const Json& value);
/// Looks at the keys that no family asks for: refuses those that would change the numbers, passes
/// over those that are known to change nothing, and says which ones are left.
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

}  // namespace rapt
