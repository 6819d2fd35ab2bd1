#include <algorithm>

#include "base/check.h"
#include "base/io/check_input.h"
#include "families/family.h"

namespace rapt::detail {

const std::vector<Family>& families() {
  // DistilBERT first: it has no token types, while BERT would need one that adds zeros.
  static const std::vector<Family> all = {
      llama_family(),     mistral_family(),    qwen2_family(),   qwen3_family(),
      gpt2_family(),      distilbert_family(), bert_family(),    t5_family(),
      bloom_family(),     roformer_family(),   roberta_family(), xlm_roberta_family(),
      camembert_family(), longformer_family(), reformer_family()};
  return all;
}

const Family& family_of(const std::string& type, const std::string& source) {
  std::string known;
  for (const Family& family : families()) {
    if (type == family.type) return family;
    known += std::string(known.empty() ? "" : ", ") + family.type;
  }
  fail_input(source, ": model_type is ", printable(type), ", expected one of ", known);
}

namespace {

/// Whether a name fits a pattern with at most one '*', which stands for digits.
bool fits(const std::string& pattern, const std::string& name, std::string& layer) {
  const std::size_t star = pattern.find('*');
  if (star == std::string::npos) return pattern == name;
  if (name.compare(0, star, pattern, 0, star) != 0) return false;
  const std::size_t end = name.find_first_not_of("0123456789", star);
  const std::string rest = pattern.substr(star + 1);
  if (end == star || (end == std::string::npos ? "" : name.substr(end)) != rest) return false;
  layer = name.substr(star, end == std::string::npos ? end : end - star);
  return true;
}

std::string filled(std::string text, const std::string& prefix, const std::string& layer) {
  if (text.starts_with('@')) text = prefix + text.substr(1);
  if (const std::size_t star = text.find('*'); star != std::string::npos)
    text.replace(star, 1, layer);
  return text;
}

/// Rows of each part: queries, keys and values have those of their heads, the others are alike.
std::vector<Index> row_counts(const ModelConfig& config, const std::string& ours, std::size_t parts,
                              Index rows) {
  const Index q = config.heads * config.dim(), kv = config.kv_head_count() * config.dim();
  if (parts == 3) return {q, kv, kv};
  if (parts == 2 && ours.ends_with("qk_v")) return {q, kv};
  return std::vector<Index>(parts, rows / static_cast<Index>(parts));
}

}  // namespace

std::vector<StoredPart> parts_of(const ModelConfig& config, const std::vector<NameRow>& names,
                                 const std::string& prefix, const std::string& parameter,
                                 const Shape& shape) {
  const std::size_t dot = parameter.rfind('.');
  const std::string stem = parameter.substr(0, dot), ending = parameter.substr(dot);
  for (const NameRow& row : names) {
    std::string layer;
    const bool whole = fits(row.ours, parameter, layer);
    if (!whole && !fits(row.ours, stem, layer)) continue;
    const std::vector<Index> counts = row_counts(config, stem, row.theirs.size(), shape[0]);
    std::vector<StoredPart> parts;
    Index first = 0;
    for (std::size_t i = 0; i < row.theirs.size(); ++i) {
      parts.push_back({filled(row.theirs[i], prefix, layer) + (whole ? "" : ending),
                       row.layouts.empty() ? TensorLayout::rows : row.layouts[i], first,
                       counts[i]});
      first += counts[i];
    }
    check(first == shape[0], "families: ", parameter, " has ", shape[0], " rows, its parts ",
          first);
    return parts;
  }
  fail("families: no name for ", parameter);
}

ModelConfig post_norm_encoder() {
  ModelConfig config;
  config.kind = ModelConfig::Kind::encoder;
  config.patterns = {full()};
  config.norm_position = ModelConfig::NormPosition::post;
  config.embedding_norm = true;
  return config;
}

Activation activation_from(Fields& fields, const char* key, const char* otherwise) {
  const std::string name = fields.choice(
      key, {"relu", "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "silu", "swish"},
      otherwise);
  if (name == "relu") return Activation::relu;
  if (name == "gelu") return Activation::gelu;
  return name == "silu" || name == "swish" ? Activation::silu : Activation::gelu_tanh;
}

std::string activation_name(Activation activation) {
  constexpr const char* names[] = {"relu", "gelu", "gelu_new", "silu"};
  return names[static_cast<int>(activation)];
}

Json common_config_json(const ModelConfig& config, const char* type,
                        const std::string& architecture) {
  return {{"model_type", type},
          {"architectures", {architecture}},
          {"vocab_size", config.vocab_size.value_or(0)},
          {"hidden_size", config.hidden_size},
          {"num_hidden_layers", config.layers},
          {"num_attention_heads", config.heads},
          {"intermediate_size", config.ffn_dim()},
          {"hidden_act", activation_name(config.activation)},
          {"max_position_embeddings", config.max_positions}};
}

void must_be(Fields& fields, const char* key, const Json& value) {
  if (fields.has(key) && fields.value(key) != value)
    fields.fail(key, "expected " + value.dump() + ": nothing else is computed here");
}

}  // namespace rapt::detail
