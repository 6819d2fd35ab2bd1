#include <algorithm>

#include "formats/config/json.h"
#include "rapt/models/generate.h"
#include "rapt/models/heads.h"
#include "rapt/models/lab.h"
#include "rapt/models/train.h"
#include "support/models.h"
#include "support/temporary_folder.h"
#include "tools/bits.h"

namespace rapt::test {
using namespace detail;
namespace {

using Ids = std::vector<std::int32_t>;

void training_steps(Bits& bits, const Context& context) {
  for (const ModelCase& c : model_cases()) {
    Transformer model = noisy_model(c.config);
    const ModelAnswer answer = answer_of(model, sample_of(c.config, {7, 30}), context);
    bits.add(answer.loss), bits.add(answer.hidden);
    for (const Tensor& gradient : answer.gradients) bits.add(gradient);
  }
}

/// Wider than the tiny ones, so that products are cut into tiles and blocks.
ModelConfig wide_config() {
  ModelConfig config = tiny_config();
  config.hidden_size = 192, config.heads = 6, config.head_dim = 32, config.intermediate_size = 416;
  return config;
}

void inference(Bits& bits, const Context& context, const std::function<void(Transformer&)>& with) {
  Transformer model = noisy_model(wide_config());
  with(model);
  for (const std::vector<Index>& lengths :
       {std::vector<Index>{1}, {3}, {5, 40}, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {130, 70}}) {
    const Sample sample = sample_of(model.config(), lengths);
    const Tensor hidden = hidden_of(model, sample, context);
    bits.add(hidden), bits.add(model.logits(hidden, context));
  }
}

void f32_inference(Bits& bits, const Context& context) {
  inference(bits, context, [](Transformer&) {});
}
void packed_inference(Bits& bits, const Context& context) {
  inference(bits, context, [&](Transformer& model) { model.pack(context); });
}
void half_inference(Bits& bits, const Context& context) {
  for (const Type type : {Type::bf16, Type::f16})
    for (const bool pack : {false, true})
      inference(bits, context, [&](Transformer& model) {
        for (Parameter& parameter : model.parameters())
          if (parameter.shape().rank() == 2) parameter.value = parameter.value.converted(type);
        if (pack) model.pack(context);
      });
}
void quantized_inference(Bits& bits, const Context& context) {
  for (const Quantization type :
       {Quantization::q8_0, Quantization::q8_1, Quantization::q4_0, Quantization::q4_1})
    inference(bits, context, [&](Transformer& model) {
      for (Parameter& parameter : model.parameters())
        if (parameter.shape().rank() == 2 && parameter.name.find("embedding") == std::string::npos)
          parameter.quantize(type, context);
    });
}

void generation(Bits& bits, const Context& context) {
  for (const ModelCase& c : model_cases()) {
    if (c.config.kind == ModelConfig::Kind::encoder) continue;
    Transformer model = noisy_model(c.config, 3);
    const std::vector<Ids> prompts = {{1, 2, 3}, {5, 4}, {2, 2, 2, 7, 1}};
    for (const double temperature : {0.0, 0.8})
      for (const Index beams : {1, 3}) {
        GenerateOptions options;
        options.sampling = {.temperature = temperature, .top_k = 8, .top_p = 0.9, .seed = 5};
        options.max_new_tokens = 6, options.num_beams = beams, options.log_probability = true;
        for (const Generated& got : generate(model, prompts, options, {}, context))
          bits.add(got.ids), bits.add(got.log_probability.value());
      }
  }
}

void training_run(Bits& bits, const Context& context) {
  RunConfig config;
  config.model = tiny_config();
  config.model.vocab_size = {};
  config.model.dropout = config.model.attention_dropout = 0.1;
  config.data.path = "task:copy";
  config.data.batch_size = 4, config.data.tokens = 32, config.data.symbols = 9;
  config.data.eval_batches = 2;
  config.train.steps = 12, config.train.log_every = 1, config.train.evaluate_every = 5;
  config.train.schedule.warmup_steps = 3;
  for (const Type weights : {Type::f32, Type::bf16}) {
    config.model.weight_type = weights;
    const TemporaryFolder folder;
    TrainEvents events;
    events.progress = [&](const TrainProgress& p) { bits.add(p.loss), bits.add(p.gradient_norm); };
    events.evaluation = [&](const Evaluation& e) { bits.add(e.loss), bits.add(e.accuracy); };
    train(config, folder.path(), ExistingRun::resume, events, context);
    LoadedRun run = load_run(folder.path());
    for (const Parameter& parameter : run.model.parameters()) bits.add(parameter.value);
  }
}

void gather_numbers(const Json& json, std::vector<double>& numbers) {
  if (json.is_number()) numbers.push_back(json.get<double>());
  for (const Json& part : json)
    if (json.is_structured()) gather_numbers(part, numbers);
}

/// Words of a report may change, and with them their order; its numbers do not.
void add_numbers(Bits& bits, const std::string& text) {
  std::vector<double> numbers;
  gather_numbers(Json::parse(text), numbers);
  std::sort(numbers.begin(), numbers.end());
  bits.add(numbers);
}

void reports(Bits& bits, const Context& context) {
  for (const ModelCase& c : model_cases()) {
    if (hashes(c.config) || c.config.global_projections) continue;
    Transformer model = noisy_model(c.config);
    const Sample sample = sample_of(c.config, {40});
    const HeadReportOptions options{.trials = false};
    add_numbers(bits, to_json(heads(model, sample.tokens, sample.sources, options, context)));
  }
  add_numbers(bits, run_lab({.experiments = {"scale", "positions"}}, context).json);
}

}  // namespace

const std::vector<Section>& model_sections() {
  static const std::vector<Section> all = {{"training steps", training_steps},
                                           {"inference f32", f32_inference},
                                           {"inference packed", packed_inference},
                                           {"inference 16-bit", half_inference},
                                           {"inference quantized", quantized_inference},
                                           {"generation", generation},
                                           {"training run", training_run},
                                           {"reports", reports}};
  return all;
}

}  // namespace rapt::test
