#include "families/family.h"

namespace rapt::detail {
namespace {

constexpr Bounds<double> factors = {1, 1e6};
constexpr Bounds<Index> lengths = {1, Index{1} << 40};

/// 0 counts as none, as in Transformers.
std::optional<double> real_or_none(Fields& s, const char* key) {
  const double number = s.real(key, {}, 0.0);
  return number == 0 ? std::nullopt : std::optional(number);
}

/// `trained` is next to the scaling in some files and above it in others.
RopeScaling yarn_from(Fields& s, Index trained) {
  YarnRope yarn{s.real("factor", factors)};
  yarn.trained_tokens = s.integer("original_max_position_embeddings", lengths, trained);
  yarn.fast = s.real("beta_fast", {}, yarn.fast);
  yarn.slow = s.real("beta_slow", {}, yarn.slow);
  yarn.mscale = real_or_none(s, "mscale");
  yarn.mscale_all_dim = real_or_none(s, "mscale_all_dim");
  yarn.truncate = s.boolean("truncate", yarn.truncate);
  if (s.has("attention_factor")) yarn.attention_factor = s.real("attention_factor");
  return yarn;
}

RopeScaling long_from(Fields& s, const ModelConfig& config, Index trained) {
  LongRope made;
  made.short_factors = s.reals("short_factor");
  made.long_factors = s.reals("long_factor");
  made.trained_tokens = s.integer("original_max_position_embeddings", lengths, trained);
  made.factor =
      s.real("factor", factors,
             static_cast<double>(config.max_positions) / static_cast<double>(made.trained_tokens));
  if (s.has("attention_factor")) made.attention_factor = s.real("attention_factor");
  return made;
}

RopeScaling scaling_from(Fields& s, const ModelConfig& config, Index trained) {
  const char* key = s.has("rope_type") ? "rope_type" : "type";
  const std::string kind = s.choice(
      key, {"default", "linear", "dynamic", "yarn", "llama3", "longrope", "su"}, "default");
  if (kind == "linear") return LinearRope{s.real("factor", factors)};
  if (kind == "dynamic") return DynamicNtkRope{s.real("factor", factors), config.max_positions};
  if (kind == "yarn") return yarn_from(s, trained);
  if (kind == "longrope" || kind == "su") return long_from(s, config, trained);
  if (kind == "llama3") {
    Llama3Rope llama{s.real("factor", factors)};
    llama.trained_tokens = s.integer("original_max_position_embeddings", lengths, trained);
    llama.low = s.real("low_freq_factor", {}, llama.low);
    llama.high = s.real("high_freq_factor", {}, llama.high);
    return llama;
  }
  return {};
}

struct ScalingJson {
  Json operator()(std::monostate) const { return {{"rope_type", "default"}}; }
  Json operator()(const LinearRope& r) const {
    return {{"rope_type", "linear"}, {"factor", r.factor}};
  }
  /// Other formats have no name for it.
  Json operator()(const NtkRope&) const { return {{"rope_type", "default"}}; }
  Json operator()(const DynamicNtkRope& r) const {
    return {{"rope_type", "dynamic"}, {"factor", r.factor}};
  }
  Json operator()(const YarnRope& r) const {
    Json made{{"rope_type", "yarn"},
              {"factor", r.factor},
              {"original_max_position_embeddings", r.trained_tokens},
              {"beta_fast", r.fast},
              {"beta_slow", r.slow},
              {"truncate", r.truncate}};
    if (r.mscale) made["mscale"] = *r.mscale;
    if (r.mscale_all_dim) made["mscale_all_dim"] = *r.mscale_all_dim;
    if (r.attention_factor) made["attention_factor"] = *r.attention_factor;
    return made;
  }
  Json operator()(const Llama3Rope& r) const {
    return {{"rope_type", "llama3"},
            {"factor", r.factor},
            {"original_max_position_embeddings", r.trained_tokens},
            {"low_freq_factor", r.low},
            {"high_freq_factor", r.high}};
  }
  Json operator()(const LongRope& r) const {
    Json made{{"rope_type", "longrope"},
              {"factor", r.factor},
              {"original_max_position_embeddings", r.trained_tokens},
              {"short_factor", r.short_factors},
              {"long_factor", r.long_factors}};
    if (r.attention_factor) made["attention_factor"] = *r.attention_factor;
    return made;
  }
};

}  // namespace

void read_rope(Fields& fields, ModelConfig& config) {
  const Index trained =
      fields.integer("original_max_position_embeddings", lengths, config.max_positions);
  if (fields.has("rope_parameters") && fields.has("rope_scaling") &&
      fields.value("rope_parameters") != fields.value("rope_scaling"))
    fields.fail("rope_parameters", "expected no rope_scaling beside it that says something else");
  const char* key = fields.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  Fields scaling = fields.object(key);
  config.rope_base = scaling.has("rope_theta") ? scaling.real("rope_theta", {1e-3, 1e12})
                                               : fields.real("rope_theta", {1e-3, 1e12}, 10000);
  must_be(fields, "partial_rotary_factor", 1.0);
  must_be(scaling, "partial_rotary_factor", 1.0);
  config.rope_scaling = scaling_from(scaling, config, trained);
}

Json rope_json(const ModelConfig& config) {
  Json made = std::visit(ScalingJson(), config.rope_scaling);
  made["rope_theta"] = config.rope_base;
  return made;
}

}  // namespace rapt::detail
