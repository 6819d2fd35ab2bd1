#include "train/run/run_folder.h"

#include <filesystem>

#include "base/check.h"
#include "base/io/check_input.h"
#include "base/io/files.h"
#include "base/memory_use.h"
#include "formats/config/toml.h"
#include "model/config/config_io.h"
#include "rapt/models/inspect.h"
#include "train/data/text_files.h"
#include "train/run/metrics_file.h"
#include "train/run/run_config.h"

namespace rapt {
using namespace detail;
namespace {

/// Bytes of text that a tokenizer is trained on.
constexpr Index sample_bytes = Index{32} << 20;

std::string config_path(const std::string& folder) { return folder + "/" + config_name; }
std::string tokenizer_path(const std::string& folder) { return folder + "/" + tokenizer_name; }

/// The first line of config.toml: a comment that ends with the hash of all that follows.
constexpr std::string_view seal = "# Written by rapt. To change a key by hand, delete this line. ";

std::string sealed(const std::string& text) {
  return std::string(seal) + hash_of(std::as_bytes(std::span(text))).text() + "\n" + text;
}

/// config.toml of a run. Without its first line it was edited by hand, and is used as it is.
RunConfig read_config(const std::string& folder) {
  const std::string path = config_path(folder);
  const std::string text = read_file(path, toml_bytes);
  const std::size_t line = text.find('\n');
  const bool cut = line == std::string::npos && seal.starts_with(text.substr(0, seal.size()));
  if (cut || text.starts_with(seal))
    check_input(!cut && text == sealed(text.substr(line + 1)), path,
                ": does not match the hash in its first line; it is damaged, or was changed by "
                "hand: put it back, or delete that line if the change is wanted");
  return run_config_from(parse_toml(text, path), path);
}

/// Items that always fill up to their last token: the memory of a step is known beforehand.
bool fills_items(const RunConfig& config) {
  return config.data.objective != Objective::pairs && !config.data.shortest &&
         config.model.kind != ModelConfig::Kind::encoder_decoder;
}

/// What would fail in the first step, after minutes of reading and multiplying.
void check_memory(const RunConfig& config) {
  const Index most = machine_memory();
  if (most == 0 || !fills_items(config)) return;
  const auto check_bytes = [&](double bytes) {
    check(bytes <= static_cast<double>(most), "train: a step of ", config.data.batch_size,
          " items of ", config.data.tokens, " tokens keeps at least ", bytes * 1e-9,
          " GB, this machine has ", static_cast<double>(most) * 1e-9,
          " GB of memory; a smaller data.batch_size or data.tokens takes less");
  };
  // Before anything is planned for that many tokens: the input of the first layer.
  check_bytes(sizeof(float) * static_cast<double>(config.data.batch_size * config.data.tokens) *
              static_cast<double>(config.model.hidden_size));
  const Inspection step =
      inspect(config.model, {.batch = config.data.batch_size, .tokens = config.data.tokens});
  check_bytes(static_cast<double>(step.configured.kept));
}

Tokenizer new_tokenizer(const RunConfig& config, const CancelCheck& cancel_check) {
  if (config.tokenizer.path) return Tokenizer::load(*config.tokenizer.path);
  if (config.tokenizer.kind == TokenizerOptions::Kind::bytes) return Tokenizer::bytes();
  return Tokenizer::train(sample_texts(config.data.path, sample_bytes, cancel_check),
                          config.tokenizer.vocab_size, cancel_check);
}

/// Different tokens that the data may have.
Index vocab_size_of(const RunConfig& config, const std::optional<Tokenizer>& tokenizer) {
  if (!tokenizer) return open_data(config.data)->vocab_size();
  return tokenizer->vocab_size() + (config.data.objective == Objective::masked_token ? 1 : 0);
}

/// What a run must keep when it resumes.
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
               to_string(found->second.shape()), ", expected ", to_string(shape));
  return std::move(found->second);
}

std::string fingerprint(const Data& data) { return std::to_string(data.fingerprint()); }

}  // namespace

std::optional<Tokenizer> detail::tokenizer_of(const RunConfig& config, const std::string& folder) {
  if (is_task(config.data)) return {};
  return Tokenizer::load(tokenizer_path(folder));
}

std::string detail::tokenizer_hash(const RunConfig& config, const std::string& folder) {
  return is_task(config.data) ? "" : digest_of(tokenizer_path(folder)).hash.text();
}

void detail::check_tokenizer(const std::string& saved, Index step, const std::string& hash,
                             const std::string& folder) {
  check_input(
      saved.empty() || saved == hash, tokenizer_path(folder),
      ": does not match the hash in the checkpoint of step ", step,
      "; it is damaged or another one: put back the tokenizer that the run was trained with");
}

std::string detail::bits_may_differ(const RunState& saved, const RunState& now) {
  const auto text = [](const RunState& state) {
    const std::string numerics = state.numerics == 0 ? "unknown" : std::to_string(state.numerics);
    return "rapt " + state.version + ", numerics revision " + numerics + ", " + state.isa;
  };
  const bool same =
      saved.isa == now.isa && saved.version == now.version && saved.numerics == now.numerics;
  if (same || saved.isa.empty() || saved.version.empty()) return "";
  return "saved by " + text(saved) + "; resumed by " + text(now) +
         ": the last bits of its numbers may differ from those of an uninterrupted run";
}

PreparedRun detail::prepare_run(const RunConfig& given, const std::string& folder,
                                const CheckpointStore& store, ExistingRun existing_run,
                                const CancelCheck& cancel_check) {
  PreparedRun run{given, {}, existing_run == ExistingRun::resume && !store.steps().empty()};
  if (existing_run == ExistingRun::refuse && !store.steps().empty())
    throw FolderNotEmpty(FolderNotEmpty::Holds::run, "train: " + folder + " holds a run already");
  RunConfig& config = run.config;
  check_train_options(config.train);
  check_data_options(config.data);
  config.model.check();
  check_memory(config);
  if (!is_task(config.data))
    run.tokenizer =
        run.resumes ? tokenizer_of(config, folder) : new_tokenizer(config, cancel_check);
  if (!config.model.vocab_size) config.model.vocab_size = vocab_size_of(config, run.tokenizer);
  config.model.check();
  const bool has_config = std::filesystem::exists(config_path(folder));
  if (run.resumes)
    check_same(config, read_config(folder), folder);
  else if (existing_run == ExistingRun::resume && has_config)
    read_config(folder);  // the caller may have taken it from there
  return run;
}

void detail::write_run(const PreparedRun& run, const std::string& folder) {
  if (run.tokenizer && !run.resumes) run.tokenizer->save(tokenizer_path(folder));
  replace_file(config_path(folder), sealed(to_toml(run.config)));
}

void detail::save_checkpoint(CheckpointStore& store, Index step, const RunConfig& config,
                             const Data& data, const Transformer& model, const Optimizer& optimizer,
                             const RunState& state) {
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
              {"pending", state.pending},
              {"isa", state.isa},
              {"version", state.version},
              {"numerics", state.numerics},
              {"tokenizer", state.tokenizer}});
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

/// Fields that came later are empty in older checkpoints.
RunState state_in(const Json& state) {
  return {.best_loss = state.at("best_loss").get<double>(),
          .waits = state.at("waits").get<Index>(),
          .evaluated = state.at("evaluated").get<bool>(),
          .pending = state.value("pending", false),
          .isa = state.value("isa", ""),
          .version = state.value("version", ""),
          .numerics = state.value("numerics", Index{0}),
          .tokenizer = state.value("tokenizer", "")};
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

RunState detail::state_of(const Checkpoint& checkpoint) {
  return read_state(checkpoint, [&] { return state_in(checkpoint.state); });
}

void detail::restore(Checkpoint& checkpoint, const RunConfig& config, const Data& data,
                     Transformer& model, Optimizer& optimizer) {
  read_state(checkpoint, [&] {
    check_model(checkpoint, config);
    if (checkpoint.state.at("data").get<std::string>() != fingerprint(data))
      fail_input("checkpoint of step ", checkpoint.step,
                 ": the data or how it is read has changed since");
    optimizer.restore(moments(checkpoint, optimizer.parameters()));
    for (Parameter& parameter : model.parameters()) {
      const Shape shape = parameter.value.shape();
      parameter.value = take(checkpoint, parameter.name, shape);
    }
    model.refresh();
  });
}

Pretrained as_pretrained(LoadedRun run) {
  Pretrained made{"rapt", std::move(run.model), std::move(run.tokenizer)};
  made.warnings = std::move(run.warnings);
  if (!made.tokenizer || !made.tokenizer->eos()) return made;
  made.special_tokens.eos = {*made.tokenizer->eos()};
  made.special_tokens.decoder_start = made.tokenizer->eos();
  return made;
}

bool is_run_folder(const std::string& path) { return std::filesystem::exists(config_path(path)); }

LoadedRun load_run(const std::string& folder) {
  const RunConfig config = read_config(folder);
  CheckpointStore store(folder, {.reads_only = true});
  const std::optional<Index> latest = store.latest();
  const std::vector<std::string> warnings = store.take_warnings();
  if (!latest)
    fail_input("load: ", folder, warnings.empty() ? " has no checkpoint yet" : ": ",
               warnings.empty() ? "" : warnings.front());
  Checkpoint checkpoint = store.load(*latest);
  read_state(checkpoint, [&] { check_model(checkpoint, config); });
  const std::string tokenizer =
      read_state(checkpoint, [&] { return checkpoint.state.value("tokenizer", ""); });
  check_tokenizer(tokenizer, *latest, tokenizer_hash(config, folder), folder);
  const auto saved = [&](Parameter& parameter, const Shape& shape) {
    parameter.value = take(checkpoint, parameter.name, shape);
  };
  return {config, Transformer(config.model, saved), tokenizer_of(config, folder), *latest,
          warnings};
}

RunStatus run_status(const std::string& folder) {
  RunStatus status;
  status.config = read_config(folder);
  status.tokenizer = tokenizer_of(status.config, folder);
  CheckpointStore store(folder, {.reads_only = true});
  status.saved = store.latest();
  status.warnings = store.take_warnings();
  if (status.saved) {
    try {
      check_tokenizer(store.state_of(*status.saved).value("tokenizer", ""), *status.saved,
                      tokenizer_hash(status.config, folder), folder);
    } catch (const std::runtime_error& error) {
      status.warnings.push_back(error.what());
    } catch (const Json::exception&) {
      // Not the state of a run, which load_run says.
    }
  }
  const MetricsTail tail = metrics_tail(folder + "/" + metrics_name);
  status.last = tail.progress;
  status.evaluation = tail.evaluation;
  return status;
}

}  // namespace rapt
