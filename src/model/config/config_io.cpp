#include "model/config/config_io.h"

#include "formats/config/field_visitors.h"
#include "model/config/config_fields.h"
#include "model/config/renamed_keys.h"

namespace rapt {
namespace detail {
namespace {
/// In the order of RopeScaling.
enum class RopeScalingKind { none, linear, ntk, dynamic_ntk, yarn, llama3, longrope };
}  // namespace
}  // namespace detail

template <>
inline constexpr EnumNames enum_names<detail::RopeScalingKind>{
    "rope scaling", "none, linear, ntk, dynamic_ntk, yarn, llama3, longrope"};

namespace detail {
namespace {

/// Beside its kind.
struct RopeScalingWriter {
  Json operator()(std::monostate) const { return {}; }
  Json operator()(const LinearRope& r) const { return Json::object({{"factor", r.factor}}); }
  Json operator()(const NtkRope& r) const { return Json::object({{"factor", r.factor}}); }
  Json operator()(const DynamicNtkRope& r) const {
    return {{"factor", r.factor}, {"trained_tokens", r.trained_tokens}};
  }
  Json operator()(const YarnRope& r) const {
    return {{"factor", r.factor},
            {"trained_tokens", r.trained_tokens},
            {"fast", r.fast},
            {"slow", r.slow}};
  }
  Json operator()(const Llama3Rope& r) const {
    return {{"factor", r.factor},
            {"trained_tokens", r.trained_tokens},
            {"low", r.low},
            {"high", r.high}};
  }
  Json operator()(const LongRope& r) const {
    return {{"factor", r.factor},
            {"trained_tokens", r.trained_tokens},
            {"short_factors", r.short_factors},
            {"long_factors", r.long_factors}};
  }
};

RopeScaling rope_scaling_from(Fields fields) {
  const auto kind = enum_field(fields, "kind", RopeScalingKind::none);
  RopeScaling made;
  const auto factor = [&] { return fields.real("factor", {1, 1e6}); };
  const auto trained = [&](Index otherwise) {
    return fields.integer("trained_tokens", {1, Index{1} << 40}, otherwise);
  };
  if (kind == RopeScalingKind::linear) made = LinearRope{factor()};
  if (kind == RopeScalingKind::ntk) made = NtkRope{factor()};
  if (kind == RopeScalingKind::dynamic_ntk) made = DynamicNtkRope{factor(), trained(2048)};
  if (kind == RopeScalingKind::yarn) {
    YarnRope yarn{factor(), trained(4096)};
    yarn.fast = fields.real("fast", {}, yarn.fast);
    yarn.slow = fields.real("slow", {}, yarn.slow);
    made = yarn;
  }
  if (kind == RopeScalingKind::llama3) {
    Llama3Rope llama{factor(), trained(8192)};
    llama.low = fields.real("low", {}, llama.low);
    llama.high = fields.real("high", {}, llama.high);
    made = llama;
  }
  if (kind == RopeScalingKind::longrope) {
    LongRope longer;
    longer.short_factors = fields.reals("short_factors");
    longer.long_factors = fields.reals("long_factors");
    longer.trained_tokens = trained(4096);
    longer.factor = factor();
    made = longer;
  }
  fields.done();
  return made;
}

}  // namespace

ModelConfig model_config_from(Fields fields, const ModelConfig& otherwise) {
  ModelConfig config = otherwise;
  fields.refuse_renamed(renamed_keys);
  FieldReader reader(fields);
  visit_model_fields(config, reader);
  if (fields.has("rope_scaling"))
    config.rope_scaling = rope_scaling_from(fields.object("rope_scaling"));
  fields.done();
  config.check();
  return config;
}

Json to_json(const ModelConfig& config) {
  FieldWriter writer;
  visit_model_fields(config, writer);
  Json scaling = std::visit(RopeScalingWriter(), config.rope_scaling);
  if (!scaling.is_null()) {
    scaling["kind"] = to_string(static_cast<RopeScalingKind>(config.rope_scaling.index()));
    writer.object["rope_scaling"] = std::move(scaling);
  }
  return writer.object;
}

}  // namespace detail
}  // namespace rapt
