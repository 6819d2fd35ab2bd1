#include "support/models.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"
#include "support/engine.h"
#include "support/network.h"

namespace rapt::test {
using namespace detail;
namespace {

using enum ModelConfig::Kind;
using enum ModelConfig::Norm;
using enum ModelConfig::NormPosition;

/// The tiny config with a change.
template <class Change>
ModelCase changed(const std::string& name, const Change& change) {
  ModelCase made{name, tiny_config()};
  change(made.config);
  return made;
}

void make_encoder_decoder(ModelConfig& c) {
  c.kind = encoder_decoder;
  c.encoder_layers = 2;
}

std::vector<ModelCase> position_cases() {
  using enum ModelConfig::Positions;
  return {
      changed("no positions", [](ModelConfig& c) { c.positions = none; }),
      changed("learned", [](ModelConfig& c) { c.positions = learned; }),
      changed("sinusoidal",
              [](ModelConfig& c) {
                c.positions = sinusoidal;
                c.scale_embeddings = true;
              }),
      changed("rope interleaved", [](ModelConfig& c) { c.rope_layout = RopeLayout::interleaved; }),
      changed("rope scaled", [](ModelConfig& c) { c.rope_scaling = LinearRope{4}; }),
      changed("rope that grows",
              [](ModelConfig& c) {
                c.rope_scaling = DynamicNtkRope{2, 10};
              }),
      changed("rope of two lengths",
              [](ModelConfig& c) {
                c.qk_norm = true;
                c.rope_scaling = LongRope{{1, 1, 1.5, 2}, {1, 2, 4, 8}, 16, 4};
              }),
      changed("alibi", [](ModelConfig& c) { c.positions = alibi; }),
      changed("t5",
              [](ModelConfig& c) {
                c.positions = t5;
                c.t5_buckets = 8;
                c.t5_max_distance = 16;
              }),
      changed("axial",
              [](ModelConfig& c) {
                c.positions = axial;
                c.axial_rows = 6;
                c.axial_columns = 8;
                c.axial_row_dim = 6;
              }),
  };
}

std::vector<ModelCase> part_cases() {
  return {
      changed("plain", [](ModelConfig&) {}),
      changed("norms after", [](ModelConfig& c) { c.norm_position = post; }),
      changed("rms", [](ModelConfig& c) { c.norm = rms; }),
      changed("rms after",
              [](ModelConfig& c) {
                c.norm = rms;
                c.norm_position = post;
              }),
      changed("no final norm", [](ModelConfig& c) { c.final_norm = false; }),
      changed("embedding norm", [](ModelConfig& c) { c.embedding_norm = true; }),
      changed("relu", [](ModelConfig& c) { c.activation = Activation::relu; }),
      changed("gelu", [](ModelConfig& c) { c.activation = Activation::gelu; }),
      changed("gated silu",
              [](ModelConfig& c) {
                c.activation = Activation::silu;
                c.gated = true;
              }),
      changed("gated gelu", [](ModelConfig& c) { c.gated = true; }),
      changed("no biases", [](ModelConfig& c) { c.biases = ModelConfig::Biases::none; }),
      changed("untied", [](ModelConfig& c) { c.tied_embeddings = false; }),
      changed("grouped heads",
              [](ModelConfig& c) {
                c.heads = 4;
                c.kv_heads = 2;
                c.head_dim = 6;
              }),
      changed("qk norm", [](ModelConfig& c) { c.qk_norm = true; }),
      changed("qk norm without rope",
              [](ModelConfig& c) {
                c.qk_norm = true;
                c.positions = ModelConfig::Positions::alibi;
              }),
      changed("softcap and log-n scale",
              [](ModelConfig& c) {
                c.softcap = 2;
                c.scale = Scale::log_n(8);
              }),
  };
}

std::vector<ModelCase> pattern_cases() {
  return {
      changed("windows",
              [](ModelConfig& c) {
                c.patterns = {causal() & window(2, 0), causal() & window(5, 0)};
              }),
      changed("window and global tokens",
              [](ModelConfig& c) { c.patterns = {causal() & (window(3, 0) | tokens({0}))}; }),
      changed("global tokens that come late",
              [](ModelConfig& c) {
                c.patterns = {causal() & (window(3, 0) | tokens({1, 6, 22}))};
              }),
      changed("chunks", [](ModelConfig& c) { c.patterns = {causal() & chunks(6, 1, 0)}; }),
      changed("shared query and key",
              [](ModelConfig& c) { c.shared_query_key = ModelConfig::SharedKeys::always; }),
      changed("shared query and key, qk norm",
              [](ModelConfig& c) {
                c.shared_query_key = ModelConfig::SharedKeys::always;
                c.qk_norm = true;
              }),
      changed("dropout",
              [](ModelConfig& c) {
                c.dropout = 0.2;
                c.attention_dropout = 0.2;
              }),
      changed("dropout, recomputed",
              [](ModelConfig& c) {
                c.dropout = 0.2;
                c.attention_dropout = 0.2;
                c.recompute = true;
              }),
  };
}

std::vector<ModelCase> stack_cases() {
  return {
      changed("encoder",
              [](ModelConfig& c) {
                c.kind = encoder;
                c.patterns = {full()};
              }),
      changed("encoder with t5",
              [](ModelConfig& c) {
                c.kind = encoder;
                c.patterns = {full()};
                c.positions = ModelConfig::Positions::t5;
                c.t5_buckets = 8;
                c.t5_max_distance = 16;
              }),
      changed("encoder-decoder", make_encoder_decoder),
      changed("encoder-decoder with t5, rms, gated",
              [](ModelConfig& c) {
                make_encoder_decoder(c);
                c.positions = ModelConfig::Positions::t5;
                c.t5_buckets = 8;
                c.t5_max_distance = 16;
                c.norm = rms;
                c.gated = true;
                c.biases = ModelConfig::Biases::none;
              }),
      changed("encoder-decoder, norms after, sinusoidal, dropout",
              [](ModelConfig& c) {
                make_encoder_decoder(c);
                c.positions = ModelConfig::Positions::sinusoidal;
                c.norm_position = post;
                c.dropout = 0.1;
                c.attention_dropout = 0.1;
              }),
      changed("encoder-decoder, recomputed, grouped, qk norm",
              [](ModelConfig& c) {
                make_encoder_decoder(c);
                c.recompute = true;
                c.heads = 4;
                c.kv_heads = 1;
                c.head_dim = 4;
                c.qk_norm = true;
                c.dropout = 0.1;
              }),
  };
}

std::vector<ModelCase> reversible_cases() {
  const auto reversible = [](ModelConfig& c) {
    c.reversible = true;
    c.tied_embeddings = false;
  };
  return {
      changed("reversible", reversible),
      changed("reversible with dropout",
              [&](ModelConfig& c) {
                reversible(c);
                c.dropout = 0.2;
                c.attention_dropout = 0.2;
              }),
      changed("hashed",
              [](ModelConfig& c) {
                c.patterns = {Pattern::parse("causal & lsh(4, 2, {4})"), causal() & window(4, 0)};
                c.shared_query_key = ModelConfig::SharedKeys::always;
              }),
      changed("hashed and reversible",
              [&](ModelConfig& c) {
                reversible(c);
                c.patterns = {Pattern::parse("causal & lsh(4, 2, {4})")};
                c.shared_query_key = ModelConfig::SharedKeys::always;
                c.positions = ModelConfig::Positions::axial;
                c.axial_rows = 6;
                c.axial_columns = 8;
                c.axial_row_dim = 6;
              }),
  };
}

}  // namespace

ModelConfig tiny_config() {
  ModelConfig config;
  config.vocab_size = 13;
  config.hidden_size = 16;
  config.layers = 2;
  config.heads = 2;
  config.intermediate_size = 24;
  config.max_positions = 48;
  config.seed = 5;
  return config;
}

ModelConfig worked_example() {
  ModelConfig config;
  config.kind = ModelConfig::Kind::encoder_decoder;
  config.vocab_size = {};
  config.hidden_size = 1024;
  config.heads = 4;
  config.head_dim = 192;
  config.intermediate_size = 512;
  config.encoder_layers = 12;
  config.layers = 8;
  config.activation = Activation::relu;
  config.norm_position = ModelConfig::NormPosition::post;
  config.positions = ModelConfig::Positions::none;
  return config;
}

std::vector<ModelCase> model_cases() {
  std::vector<ModelCase> all;
  for (auto* some : {part_cases, position_cases, pattern_cases, stack_cases, reversible_cases})
    for (ModelCase& each : some()) all.push_back(std::move(each));
  return all;
}

std::vector<ModelCase> cached_model_cases() {
  std::vector<ModelCase> all = model_cases();
  std::erase_if(all, [](const ModelCase& c) {
    return c.config.kind == encoder || hashes(c.config) || angles_follow_length(c.config);
  });
  return all;
}

std::vector<ModelCase> growing_model_cases() {
  const auto hashed = [](ModelConfig& c) {
    c.shared_query_key = ModelConfig::SharedKeys::always;
    c.patterns = {causal() & window(4, 0), Pattern::parse("causal & lsh(8, 2, {4})")};
  };
  const auto one_reversible = [](ModelConfig& c) {
    c.shared_query_key = ModelConfig::SharedKeys::always;
    c.patterns = {
        Pattern::parse("lsh(4, 2, {2, 4}, 3) & causal & (window(12, 0) | tokens({0, 1, 25}))")};
    c.layers = 1;
    c.reversible = true;
    c.tied_embeddings = false;
  };
  std::vector<ModelCase> all = {changed("hashed at last", hashed),
                                changed("hashed, one reversible layer", one_reversible)};
  for (const ModelCase& c : model_cases())
    if (angles_follow_length(c.config)) all.push_back(c);
  return all;
}

bool hashes(const ModelConfig& config) {
  const auto hashed = [](const Pattern& pattern) { return lsh_part(pattern).has_value(); };
  return std::ranges::any_of(config.patterns, hashed);
}

Transformer noisy_model(const ModelConfig& config, std::uint64_t seed) {
  Transformer model(config);
  for (Parameter& parameter : model.parameters()) {
    const Tensor noise = random_tensor(parameter.value.shape(), ++seed * 1000);
    const float size = parameter.value.shape().rank() == 1 ? 0.2f : 0.05f;
    for (std::size_t i = 0; i < noise.numbers().size(); ++i)
      parameter.value.numbers()[i] += size * noise.numbers()[i];
  }
  return model;
}

Tokens random_tokens(Index vocabulary, const std::vector<Index>& lengths, std::uint64_t seed) {
  Tokens made{{}, lengths};
  const Index count = std::accumulate(lengths.begin(), lengths.end(), Index{0});
  for (Index i = 0; i < count; ++i)
    made.ids.push_back(static_cast<std::int32_t>(random_bits(seed, {i, 0}) %
                                                 static_cast<std::uint64_t>(vocabulary)));
  return made;
}

Sample sample_of(const ModelConfig& config, const std::vector<Index>& lengths, std::uint64_t seed) {
  Sample sample{random_tokens(*config.vocab_size, lengths, seed), {}, {}};
  sample.targets = random_tokens(*config.vocab_size, lengths, seed + 1).ids;
  for (std::size_t i = 3; i < sample.targets.size(); i += 7) sample.targets[i] = -1;
  if (config.kind != encoder_decoder) return sample;
  std::vector<Index> longer = lengths;
  for (std::size_t i = 0; i < longer.size(); ++i) longer[i] += 1 + static_cast<Index>(i % 3);
  sample.sources = random_tokens(*config.vocab_size, longer, seed + 2);
  return sample;
}

namespace {

Tokens one_of(const Tokens& tokens, Index index) {
  if (tokens.lengths.empty()) return {};
  Index first = 0;
  for (Index i = 0; i < index; ++i) first += tokens.lengths[static_cast<std::size_t>(i)];
  const auto begin = tokens.ids.begin() + first;
  return Tokens::one({begin, begin + tokens.lengths[static_cast<std::size_t>(index)]});
}

Variable forward(Transformer& model, Tape& tape, const Sample& sample) {
  const PassOptions options{.dropout = {.seed = 3, .step = 7}};
  if (sample.sources.ids.empty()) return model.forward(tape, sample.tokens, options);
  return model.forward(tape, sample.tokens, sample.sources, options);
}

}  // namespace

Sample sequence_of(const Sample& sample, Index index) {
  return {one_of(sample.tokens, index), one_of(sample.sources, index),
          one_of({sample.targets, sample.tokens.lengths}, index).ids};
}

ModelAnswer answer_of(Transformer& model, const Sample& sample, const Context& context) {
  for (Parameter& parameter : model.parameters()) parameter.gradient = {};
  Tape tape(Tape::Mode::train, context);
  const Variable hidden = forward(model, tape, sample);
  const TokenLoss loss = model.loss(tape, hidden, sample.targets);
  ModelAnswer answer{loss.total / static_cast<double>(loss.counted), hidden.value().clone(), {}};
  tape.backward(loss.loss);
  for (Parameter& parameter : model.parameters())
    answer.gradients.push_back(parameter.gradient_or_zeros().clone());
  return answer;
}

double loss_of(Transformer& model, const Sample& sample) {
  Tape tape(Tape::Mode::train);
  const TokenLoss loss = model.loss(tape, forward(model, tape, sample), sample.targets);
  return loss.total / static_cast<double>(loss.counted);
}

Tensor hidden_of(Transformer& model, const Sample& sample, const Context& context) {
  Tape tape(Tape::Mode::forward, context);
  return forward(model, tape, sample).value().clone();
}

std::vector<Index> starts_of(const std::vector<Index>& lengths) {
  std::vector<Index> starts;
  Index start = 0;
  for (const Index length : lengths) {
    starts.push_back(start);
    start += length;
  }
  return starts;
}

double largest(const Tensor& x) {
  double most = 0;
  for (const float number : x.numbers())
    most = std::max(most, std::abs(static_cast<double>(number)));
  return most;
}

Tensor rows_of(const Tensor& x, Index first, Index count) {
  Tensor some = Tensor::uninitialized({count, x.shape()[1]});
  std::copy_n(x.data() + first * x.shape()[1], some.elements(), some.data());
  return some;
}

std::string beyond_model_bound(const std::string& what, const Tensor& got, const Tensor& want,
                               Index layers, double units) {
  return beyond(what, got.numbers(), widened(want), {std::max(1e-30, largest(want))},
                units * static_cast<double>(layers));
}

}  // namespace rapt::test
