#include "train/run_folder.h"

#include <filesystem>

#include "base/check.h"
#include "base/files.h"
#include "base/input.h"
#include "formats/toml.h"
#include "model/config_io.h"
#include "train/metrics.h"
#include "train/run_config.h"
#include "train/text_files.h"

namespace rapt {
namespace {

/// Bytes of text that a tokenizer is learnt from.
constexpr Index sample_bytes = Index{32} << 20;

std::string config_path(const std::string& folder) { return folder + "/config.toml"; }
std::string tokenizer_path(const std::string& folder) { return folder + "/tokenizer.json"; }

Tokenizer new_tokenizer(const RunConfig& config, const Pause& pause) {
  if (!config.tokenizer.path.empty()) return Tokenizer::read(config.tokenizer.path);
  if (config.tokenizer.kind == TokenizerOptions::Kind::bytes) return Tokenizer::bytes();
  return Tokenizer::learn(sample_texts(config.data.path, sample_bytes, pause),
                          config.tokenizer.entries, pause);
}

/// Different tokens that the data may have.
Index entries_of(const RunConfig& config, const std::optional<Tokenizer>& tokenizer) {
  if (!tokenizer) return open_data(config.data)->entries();
  return tokenizer->entries() + (config.data.learning == Learning::masked_token ? 1 : 0);
}

/// What a run may not change on its way.
void check_same(const RunConfig& now, const RunConfig& before, const std::string& folder) {
  const Json a = to_json(now), b = to_json(before);
  for (const char* section : {"model", "data", "tokenizer"})
    for (const auto& [key, value] : b.at(section).items())
      if (a.at(section).value(key, Json()) != value)
        fail_input("train: ", folder, " holds a run with ", section, ".", key, " = ", value.dump(),
                   ", now it is ", a.at(section).value(key, Json()).dump(),
                   "; take another folder, or the same config");
}

std::string first_name(const std::string& name) { return "adam.first." + name; }
std::string second_name(const std::string& name) { return "adam.second." + name; }

Tensor take(Checkpoint& checkpoint, const std::string& name, const Shape& shape) {
  const auto found = checkpoint.tensors.find(name);
  if (found == checkpoint.tensors.end())
    fail_input("checkpoint of step ", checkpoint.step, ": there is no ", name);
  if (found->second.shape() != shape || found->second.type() != Type::f32)
    fail_input("checkpoint of step ", checkpoint.step, ": ", name, " has shape ",
               found->second.shape().text(), ", expected ", shape.text());
  return std::move(found->second);
}

std::string fingerprint(const Data& data) { return std::to_string(data.fingerprint()); }

}  // namespace

std::optional<Tokenizer> tokenizer_of(const RunConfig& config, const std::string& folder) {
  if (is_task(config.data)) return {};
  return Tokenizer::read(tokenizer_path(folder));
}

PreparedRun prepare_run(const RunConfig& given, const std::string& folder,
                        const CheckpointStore& store, OldRun old_run, const Pause& pause) {
  PreparedRun run{given, {}, old_run == OldRun::go_on && !store.steps().empty()};
  check(old_run != OldRun::refuse || store.steps().empty(), "train: ", folder,
        " holds a run already; --resume goes on with it, --force starts it over, --out takes "
        "another folder");
  RunConfig& config = run.config;
  config.train.schedule.steps = config.train.steps;
  if (!is_task(config.data))
    run.tokenizer = run.goes_on ? tokenizer_of(config, folder) : new_tokenizer(config, pause);
  if (config.model.vocabulary == 0) config.model.vocabulary = entries_of(config, run.tokenizer);
  config.model.check();
  if (run.goes_on)
    check_same(config, run_config_from(read_toml(config_path(folder)), config_path(folder)),
               folder);
  return run;
}

void write_run(const PreparedRun& run, const std::string& folder) {
  if (run.tokenizer && !run.goes_on) {
    std::filesystem::remove(tokenizer_path(folder));
    run.tokenizer->write(tokenizer_path(folder));
  }
  replace_file(config_path(folder), to_toml(run.config));
}

void save_checkpoint(CheckpointStore& store, Index step, const RunConfig& config, const Data& data,
                     const Transformer& model, const Optimizer& optimizer, const RunState& state) {
  std::vector<NamedTensor> tensors;
  Json steps = Json::array();
  for (const Parameter& parameter : model.parameters())
    tensors.push_back({parameter.name, parameter.value});
  for (std::size_t i = 0; i < optimizer.state().size(); ++i) {
    const AdamState& adam = optimizer.state()[i];
    steps.push_back(adam.steps);
    if (adam.first.empty()) continue;
    tensors.push_back({first_name(optimizer.parameters()[i]->name), adam.first});
    tensors.push_back({second_name(optimizer.parameters()[i]->name), adam.second});
  }
  store.save(step, tensors,
             {{"config", to_json(config)},
              {"data", fingerprint(data)},
              {"adam_steps", steps},
              {"best_loss", state.best_loss},
              {"waits", state.waits},
              {"evaluated", state.evaluated},
              {"pending", state.pending}});
}

namespace {

/// Fields that came later have their defaults in an older checkpoint.
void check_model(const Checkpoint& checkpoint, const RunConfig& config) {
  const std::string source = "checkpoint of step " + std::to_string(checkpoint.step);
  const ModelConfig saved =
      model_config_from(Fields(checkpoint.state.at("config").at("model"), source, "model"));
  if (to_json(saved) != to_json(config.model))
    fail_input(source, ": it is of another model than config.toml describes");
}

std::vector<AdamState> moments(Checkpoint& checkpoint, std::span<Parameter* const> parameters) {
  const Json& steps = checkpoint.state.at("adam_steps");
  std::vector<AdamState> state;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Shape shape = parameters[i]->value.shape();
    AdamState adam;
    adam.steps = steps.at(i).get<Index>();
    if (adam.steps > 0) {
      adam.first = take(checkpoint, first_name(parameters[i]->name), shape);
      adam.second = take(checkpoint, second_name(parameters[i]->name), shape);
    }
    state.push_back(std::move(adam));
  }
  return state;
}

/// Runs what reads a state; one that lacks something is named.
template <class Read>
auto read_state(const Checkpoint& checkpoint, const Read& read) {
  try {
    return read();
  } catch (const Json::exception& error) {
    fail_input("checkpoint of step ", checkpoint.step,
               ": its state is not that of a run: ", error.what());
  }
}

}  // namespace

RunState restore(Checkpoint& checkpoint, const RunConfig& config, const Data& data,
                 Transformer& model, Optimizer& optimizer) {
  return read_state(checkpoint, [&] {
    check_model(checkpoint, config);
    if (checkpoint.state.at("data").get<std::string>() != fingerprint(data))
      fail_input("checkpoint of step ", checkpoint.step,
                 ": the data or how it is read has changed since");
    const RunState state{
        checkpoint.state.at("best_loss").get<double>(), checkpoint.state.at("waits").get<Index>(),
        checkpoint.state.at("evaluated").get<bool>(), checkpoint.state.value("pending", false)};
    optimizer.restore(moments(checkpoint, optimizer.parameters()));
    for (Parameter& parameter : model.parameters()) {
      const Shape shape = parameter.value.shape();
      parameter.value = take(checkpoint, parameter.name, shape);
    }
    model.refresh();
    return state;
  });
}

Pretrained as_pretrained(LoadedRun run) {
  Pretrained made{"rapt", std::move(run.model), std::move(run.tokenizer)};
  made.notices = std::move(run.notices);
  if (!made.tokenizer || !made.tokenizer->end()) return made;
  made.special.ends = {*made.tokenizer->end()};
  made.special.decoder_start = made.tokenizer->end();
  return made;
}

bool is_run_folder(const std::string& path) { return std::filesystem::exists(config_path(path)); }

LoadedRun load_run(const std::string& folder) {
  const RunConfig config = run_config_from(read_toml(config_path(folder)), config_path(folder));
  CheckpointStore store(folder, {.reads_only = true});
  const std::optional<Index> latest = store.latest();
  const std::vector<std::string> notices = store.take_notices();
  if (!latest)
    fail_input("load: ", folder, notices.empty() ? " has no checkpoint yet" : ": ",
               notices.empty() ? "" : notices.front());
  Checkpoint checkpoint = store.load(*latest);
  read_state(checkpoint, [&] { check_model(checkpoint, config); });
  const auto saved = [&](Parameter& parameter, const Shape& shape) {
    parameter.value = take(checkpoint, parameter.name, shape);
  };
  return {config, Transformer(config.model, saved), tokenizer_of(config, folder), *latest, notices};
}

RunStatus run_status(const std::string& folder) {
  RunStatus status;
  status.config = run_config_from(read_toml(config_path(folder)), config_path(folder));
  status.tokenizer = tokenizer_of(status.config, folder);
  CheckpointStore store(folder, {.reads_only = true});
  status.saved = store.latest();
  status.notices = store.take_notices();
  const MetricsTail tail = metrics_tail(folder + "/metrics.jsonl");
  status.last = tail.progress;
  status.evaluation = tail.evaluation;
  return status;
}

}  // namespace rapt
