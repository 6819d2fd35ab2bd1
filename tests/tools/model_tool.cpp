// For bench/train_peers.py.
//   model_tool init CONFIG OUT                    the first weights as safetensors
//   model_tool batches CONFIG FOLDER STEPS OUT    the batches of a run's first steps, as TOKENS
//   model_tool train CONFIG WEIGHTS TOKENS        trains on the batches of TOKENS, in turn: reads a
//       number of steps from each line of its input and answers with their losses and seconds
// TOKENS is text, a line for each part: "tokens 1 2 3", "targets 2 3 -1", "sources 4 5"; a sequence
// has one line of each, and "batch" stands before the sequences of a batch.
#include <chrono>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <sstream>

#include "base/check.h"
#include "base/keep_memory.h"
#include "formats/tensors/safetensors_file.h"
#include "train/data/packed_batch.h"
#include "train/optimizer.h"
#include "train/run/run_folder.h"
#include "verb.h"

namespace rapt {
using namespace detail;
namespace {

using test::Arguments;

PackedBatch& current(std::vector<PackedBatch>& batches) {
  if (batches.empty()) batches.emplace_back();
  return batches.back();
}

std::vector<PackedBatch> read_batches(const std::string& path) {
  std::ifstream file(path);
  check(file.is_open(), "model_tool: cannot read ", path);
  std::vector<PackedBatch> batches;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    if (what == "batch") {
      batches.emplace_back();
      continue;
    }
    const std::vector<std::int32_t> ids(std::istream_iterator<std::int32_t>(words), {});
    PackedBatch& batch = current(batches);
    if (what == "targets") {
      batch.targets.insert(batch.targets.end(), ids.begin(), ids.end());
      continue;
    }
    Tokens& tokens = what == "sources" ? batch.sources : batch.tokens;
    tokens.ids.insert(tokens.ids.end(), ids.begin(), ids.end());
    tokens.lengths.push_back(static_cast<Index>(ids.size()));
  }
  return batches;
}

void write_ids(std::ostream& out, const char* what, std::span<const std::int32_t> ids) {
  out << what;
  for (const std::int32_t id : ids) out << ' ' << id;
  out << '\n';
}

void write_batch(std::ostream& out, const PackedBatch& batch) {
  out << "batch\n";
  std::size_t token = 0, source = 0;
  for (std::size_t i = 0; i < batch.tokens.lengths.size(); ++i) {
    const auto count = static_cast<std::size_t>(batch.tokens.lengths[i]);
    write_ids(out, "tokens", std::span(batch.tokens.ids).subspan(token, count));
    write_ids(out, "targets", std::span(batch.targets).subspan(token, count));
    token += count;
    if (batch.sources.ids.empty()) continue;
    const auto length = static_cast<std::size_t>(batch.sources.lengths[i]);
    write_ids(out, "sources", std::span(batch.sources.ids).subspan(source, length));
    source += length;
  }
}

Transformer model_of(const RunConfig& config, const std::string& weights) {
  Transformer model(config.model);
  const SafetensorsFile file(weights);
  for (Parameter& parameter : model.parameters()) {
    Tensor value = file.read(parameter.name);
    check(value.shape() == parameter.value.shape(), "model_tool: ", parameter.name, " is ",
          value.shape(), ", expected ", parameter.value.shape());
    parameter.value = std::move(value);
  }
  model.refresh();
  return model;
}

Variable forward(Transformer& model, Tape& tape, const PackedBatch& batch, Index step) {
  const PassOptions options{.dropout = {.seed = 1, .step = step}};
  if (batch.sources.ids.empty()) return model.forward(tape, batch.tokens, options);
  return model.forward(tape, batch.tokens, batch.sources, options);
}

void write_first_weights(const Arguments& words) {
  const Transformer model(read_run_config(words[0]).model);
  std::vector<NamedTensor> tensors;
  for (const Parameter& p : model.parameters()) tensors.push_back({p.name, p.value});
  write_safetensors(words[1], tensors);
}

void write_batches(const Arguments& words) {
  const CheckpointStore store(words[1]);
  const PreparedRun run =
      prepare_run(read_run_config(words[0]), words[1], store, ExistingRun::overwrite);
  const auto data = open_data(run.config.data, run.tokenizer);
  std::ofstream out(words[3]);
  for (Index step = 0; step < std::stoll(words[2]); ++step)
    write_batch(out, packed(data->batch(step)));
  check(out.flush().good(), "model_tool: cannot write ", words[3]);
}

/// What the trainer does in a step, without folder and report.
double train_step(const RunConfig& config, Transformer& model, Optimizer& optimizer,
                  const PackedBatch& batch, Index step) {
  clear_gradients(optimizer.parameters());
  Tape tape;
  const Variable hidden = forward(model, tape, batch, step);
  const TokenLoss loss = model.loss(tape, hidden, batch.targets);
  tape.backward(loss.loss);
  const GradientNorm norm = gradient_norm(optimizer.parameters());
  optimizer.step({.learning_rate = learning_rate_at(config.train, step),
                  .gradient_factor = clip_factor(norm.norm, config.train.max_grad_norm)});
  model.refresh();
  return loss.total / static_cast<double>(loss.counted);
}

void train_alternately(const Arguments& words) {
  const KeepMemory keep(std::size_t{2} << 30);  // as rapt::train does
  const RunConfig config = read_run_config(words[0]);
  Transformer model = model_of(config, words[1]);
  const std::vector<PackedBatch> batches = read_batches(words[2]);
  std::vector<Parameter*> parameters;
  for (Parameter& parameter : model.parameters()) parameters.push_back(&parameter);
  Optimizer optimizer(parameters, config.train.optimizer);
  Index step = 0;
  std::cout << std::setprecision(17) << "ready" << std::endl;
  for (Index steps = 0; std::cin >> steps;) {
    const auto start = std::chrono::steady_clock::now();
    std::ostringstream losses;
    losses << std::setprecision(17);
    for (Index i = 0; i < steps; ++i, ++step)
      losses << train_step(config, model, optimizer,
                           batches[static_cast<std::size_t>(step) % batches.size()], step)
             << ' ';
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::cout << losses.str() << seconds.count() << std::endl;
  }
}

constexpr test::Verb verbs[] = {{"init", 2, write_first_weights},
                                {"batches", 4, write_batches},
                                {"train", 3, train_alternately}};

}  // namespace
}  // namespace rapt

int main(int count, char** words) {
  return rapt::test::run_tool("model_tool", rapt::verbs, count, words);
}
