#include "model/config_io.h"

#include "formats/config/field_visitors.h"
#include "model/config_fields.h"

namespace rapt {
namespace {

struct RopeScalingWriter {
  Json operator()(std::monostate) const { return nullptr; }
  Json operator()(const LinearRope& r) const { return {{"kind", "linear"}, {"factor", r.factor}}; }
  Json operator()(const NtkRope& r) const { return {{"kind", "ntk"}, {"factor", r.factor}}; }
  Json operator()(const DynamicNtkRope& r) const {
    return {{"kind", "dynamic-ntk"}, {"factor", r.factor}, {"trained_tokens", r.trained_tokens}};
  }
  Json operator()(const YarnRope& r) const {
    return {{"kind", "yarn"},
            {"factor", r.factor},
            {"trained_tokens", r.trained_tokens},
            {"fast", r.fast},
            {"slow", r.slow}};
  }
  Json operator()(const Llama3Rope& r) const {
    return {{"kind", "llama3"},
            {"factor", r.factor},
            {"trained_tokens", r.trained_tokens},
            {"low", r.low},
            {"high", r.high}};
  }
  Json operator()(const LongRope& r) const {
    return {{"kind", "longrope"},
            {"factor", r.factor},
            {"trained_tokens", r.trained_tokens},
            {"short_factors", r.short_factors},
            {"long_factors", r.long_factors}};
  }
};

RopeScaling rope_scaling_from(Fields fields) {
  const std::string kind = fields.choice(
      "kind", {"none", "linear", "ntk", "dynamic-ntk", "yarn", "llama3", "longrope"}, "none");
  RopeScaling made;
  const auto factor = [&] { return fields.real("factor", {1, 1e6}); };
  const auto trained = [&](Index otherwise) {
    return fields.integer("trained_tokens", {1, Index{1} << 40}, otherwise);
  };
  if (kind == "linear") made = LinearRope{factor()};
  if (kind == "ntk") made = NtkRope{factor()};
  if (kind == "dynamic-ntk") made = DynamicNtkRope{factor(), trained(2048)};
  if (kind == "yarn") {
    YarnRope yarn{factor(), trained(4096)};
    yarn.fast = fields.real("fast", {}, yarn.fast);
    yarn.slow = fields.real("slow", {}, yarn.slow);
    made = yarn;
  }
  if (kind == "llama3") {
    Llama3Rope llama{factor(), trained(8192)};
    llama.low = fields.real("low", {}, llama.low);
    llama.high = fields.real("high", {}, llama.high);
    made = llama;
  }
  if (kind == "longrope") {
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
  FieldReader<Words> reader(fields);
  visit_model_fields(config, reader);
  if (fields.has("rope_scaling"))
    config.rope_scaling = rope_scaling_from(fields.object("rope_scaling"));
  fields.done();
  config.check();
  return config;
}

Json to_json(const ModelConfig& config) {
  FieldWriter<Words> writer;
  visit_model_fields(config, writer);
  const Json scaling = std::visit(RopeScalingWriter(), config.rope_scaling);
  if (!scaling.is_null()) writer.object["rope_scaling"] = scaling;
  return writer.object;
}

}  // namespace rapt
