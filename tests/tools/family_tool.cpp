// For tests/oracles/pretrained/test_families.py.
//   family_tool answer FOLDER TOKENS OUT   what a model of others makes of tokens: hidden states,
//                                          logits, loss and gradients, under the folder's names
//   family_tool copy FOLDER OUT            reads the model and writes it again
//   family_tool steps FOLDER TOKENS OUT    logits of every token of the first sequence, each from a
//                                          cache that knows those before it
//   family_tool export RUN OUT             writes a run of rapt train as others read it
// TOKENS: a line for each part of a sequence: "tokens 1 2 3", "targets 2 3 -1", "sources 4 5",
// "types 0 0 1", "global 1 0 0".
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include "base/check.h"
#include "families/stored_tensors.h"
#include "formats/tensors/safetensors_file.h"
#include "rapt/models/train.h"
#include "verb.h"

namespace rapt {
using namespace detail;
namespace {

using test::Arguments;

struct Batch {
  Tokens tokens, sources;
  std::vector<std::int32_t> targets;
};

Batch read_batch(const std::string& path) {
  std::ifstream file(path);
  check(file.is_open(), "family_tool: cannot read ", path);
  Batch batch;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    const std::vector<std::int32_t> ids(std::istream_iterator<std::int32_t>(words), {});
    const auto append = [&](auto& to) { to.insert(to.end(), ids.begin(), ids.end()); };
    if (what == "targets") append(batch.targets);
    if (what == "types") append(batch.tokens.type_ids);
    if (what == "global") append(batch.tokens.global_attention_mask);
    if (what != "tokens" && what != "sources") continue;
    Tokens& tokens = what == "sources" ? batch.sources : batch.tokens;
    append(tokens.ids);
    tokens.lengths.push_back(static_cast<Index>(ids.size()));
  }
  return batch;
}

/// Gradients by the names that the family stores them under.
void add_gradients(const Pretrained& loaded, std::vector<Tensor>& made,
                   std::vector<std::string>& names) {
  const Family& family = family_of(loaded.family, "family_tool");
  const ModelConfig& config = loaded.model.config();
  const std::vector<NameRow> rows = family.names(config);
  for (const Parameter& parameter : loaded.model.parameters()) {
    if (parameter.gradient.empty()) continue;
    for (const StoredPart& part : parts_of(config, rows, config.head ? family.prefix : "",
                                           parameter.name, parameter.value.shape())) {
      made.push_back(scatter(parameter.gradient, part, config));
      names.push_back("gradient." + part.name);
    }
  }
}

void answer(const Arguments& words) {
  Pretrained loaded = load_pretrained(words[0]);
  for (const std::string& line : loaded.warnings) std::cout << line << '\n';
  const Batch batch = read_batch(words[1]);
  Tape tape;
  // Dropout is the trainer's business.
  const Variable hidden = batch.sources.ids.empty()
                              ? loaded.model.forward(tape, batch.tokens)
                              : loaded.model.forward(tape, batch.tokens, batch.sources);
  std::vector<Tensor> made;
  std::vector<std::string> names;
  made.push_back(hidden.value().clone());
  names.emplace_back("hidden");
  if (loaded.model.config().head) {
    made.push_back(loaded.model.logits(hidden.value()));
    names.emplace_back("logits");
    const TokenLoss loss = loaded.model.loss(tape, hidden, batch.targets);
    made.push_back(loss.loss.value().clone());
    names.emplace_back("loss");
    tape.backward(loss.loss);
  } else {  // the sum of all numbers stands for a loss
    Tensor ones(hidden.shape());
    std::fill_n(ones.data(), ones.elements(), 1.0f);
    tape.backward(hidden, std::move(ones));
  }
  add_gradients(loaded, made, names);
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < made.size(); ++i) tensors.push_back({names[i], made[i]});
  write_safetensors(words[2], tensors);
}

void copy(const Arguments& words) {
  const Pretrained loaded = load_pretrained(words[0]);
  save_pretrained(words[1], loaded.model, loaded.tokenizer, save_options(loaded));
}

void steps(const Arguments& words) {
  Pretrained loaded = load_pretrained(words[0]);
  const Batch batch = read_batch(words[1]);
  ModelCache cache(loaded.model, {});
  const Index sequence = cache.add();
  const Index length = batch.tokens.lengths[0];
  if (!batch.sources.ids.empty()) {
    const auto end = batch.sources.ids.begin() + batch.sources.lengths[0];
    loaded.model.encode(Tokens::one({batch.sources.ids.begin(), end}), cache, {&sequence, 1});
  }
  Tensor all = Tensor::uninitialized({length, *loaded.model.config().vocab_size});
  float* to = all.data();
  for (Index t = 0; t < length; ++t) {
    const Tokens token = Tokens::one({batch.tokens.ids[static_cast<std::size_t>(t)]});
    const Tensor logits = loaded.model.logits(loaded.model.extend(token, cache, {&sequence, 1}));
    to = std::copy_n(logits.data(), logits.elements(), to);
  }
  const NamedTensor tensors[] = {{"logits", all}};
  write_safetensors(words[2], tensors);
}

void export_run(const Arguments& words) {
  const LoadedRun run = load_run(words[0]);
  save_pretrained(words[1], run.model, run.tokenizer);
}

constexpr test::Verb verbs[] = {
    {"answer", 3, answer}, {"copy", 2, copy}, {"steps", 3, steps}, {"export", 2, export_run}};

}  // namespace
}  // namespace rapt

int main(int count, char** words) {
  return rapt::test::run_tool("family_tool", rapt::verbs, count, words);
}
