#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "formats/config/json.h"
#include "rapt/models/train.h"
#include "support/models.h"
#include "support/temporary_folder.h"
#include "support/truth/bound.h"
#include "train/run/checkpoint_store.h"
#include "train/run/metrics_file.h"

namespace rapt::test {
using namespace detail;
namespace {

RunConfig tiny_run() {
  RunConfig config;
  config.model = tiny_config();
  config.model.vocab_size = {};  // as many as the task has
  config.model.dropout = config.model.attention_dropout = 0.1;
  config.data.path = "task:copy";
  config.data.batch_size = 4;
  config.data.tokens = 32;
  config.data.symbols = 9;
  config.data.eval_batches = 2;
  config.train.steps = 12;
  config.train.schedule.warmup_steps = 3;
  config.train.log_every = 1;
  config.train.evaluate_every = 5;
  config.train.save_every = 4;
  return config;
}

/// A run and what came of it.
struct Ran {
  std::vector<double> losses;
  std::vector<Evaluation> evaluations;
  TrainResult result;
};

Ran run(const RunConfig& config, const std::string& folder, Index stop_after = 0,
        const Context& context = {}) {
  Ran ran;
  TrainEvents events;
  events.progress = [&](const TrainProgress& p) { ran.losses.push_back(p.loss); };
  events.evaluation = [&](const Evaluation& e) { ran.evaluations.push_back(e); };
  events.stop = [&] { return stop_after > 0 && std::ssize(ran.losses) >= stop_after; };
  ran.result = train(config, folder, ExistingRun::resume, events, context);
  return ran;
}

void expect_same_weights(const std::string& got, const std::string& want) {
  const LoadedRun a = load_run(got), b = load_run(want);
  EXPECT_EQ(a.step, b.step);
  for (std::size_t i = 0; i < b.model.parameters().size(); ++i)
    EXPECT_SAME_BITS(b.model.parameters()[i].name, a.model.parameters()[i].value.numbers(),
                     b.model.parameters()[i].value.numbers());
}

TEST(Train, GoesOnWithTheSameBits) {
  const TemporaryFolder folder;
  const RunConfig config = tiny_run();
  const Ran whole = run(config, folder / "whole");
  EXPECT_EQ(whole.losses.size(), 12u);
  for (const Index stop : {1, 3, 4, 7, 11}) {
    const std::string name = folder / std::to_string(stop);
    Ran parts = run(config, name, stop);
    EXPECT_EQ(parts.result.finish_reason, TrainResult::Finish::stopped);
    EXPECT_EQ(parts.result.step, stop);
    const Ran rest = run(config, name);
    parts.losses.insert(parts.losses.end(), rest.losses.begin(), rest.losses.end());
    EXPECT_EQ(parts.losses, whole.losses) << stop;
    EXPECT_EQ(rest.evaluations.back().loss, whole.evaluations.back().loss);
    expect_same_weights(name, folder / "whole");
  }
}

/// What metrics.jsonl says, without how fast it was.
std::vector<Json> metrics_in(const std::string& folder) {
  std::vector<Json> lines;
  std::istringstream all(get(folder + "/metrics.jsonl"));
  for (std::string line; std::getline(all, line);) {
    lines.push_back(Json::parse(line));
    lines.back().erase("tokens_per_second");
    lines.back().erase("of_peak");
  }
  return lines;
}

TEST(Train, AStoppedRunTellsItsMetricsOnce) {
  const TemporaryFolder folder;
  const RunConfig config = tiny_run();
  run(config, folder / "whole");
  run(config, folder / "parts", 6);
  run(config, folder / "parts");
  EXPECT_EQ(metrics_in(folder / "parts"), metrics_in(folder / "whole"));
}

/// Whenever it is asked: while a tokenizer is trained, data read, a step taken, an evaluation made.
TEST(Train, WhoeverStopsItAtAnyMomentLosesNothing) {
  const TemporaryFolder folder;
  put(folder / "text.txt", [] {
    std::string text;
    for (int i = 0; i < 900; ++i) text += "word" + std::to_string(i * i % 37) + ' ';
    return text;
  }());
  RunConfig config = tiny_run();
  config.data.path = folder / "text.txt";
  config.tokenizer.kind = TokenizerOptions::Kind::bpe;
  config.tokenizer.vocab_size = 262;
  config.train.steps = 4;
  config.train.evaluate_every = config.train.save_every = 2;
  config.train.patience = 5;
  run(config, folder / "whole");
  Index stops = 0, early = 0, within = 0;
  for (bool stopped = true; stopped; ++stops) {
    const std::string name = folder / ("stopped" + std::to_string(stops));
    Index asked = 0;
    Ran ran;
    TrainEvents events;
    events.evaluation = [&](const Evaluation& e) { ran.evaluations.push_back(e); };
    events.stop = [&] { return asked++ == stops; };
    ran.result = train(config, name, ExistingRun::resume, events);
    stopped = ran.result.finish_reason == TrainResult::Finish::stopped;
    if (stopped && !std::filesystem::exists(name + "/config.toml")) {
      ++early;
      EXPECT_FALSE(std::filesystem::exists(name + "/tokenizer.json"));
      EXPECT_FALSE(std::filesystem::exists(name + "/metrics.jsonl"));
    }
    within += stopped && ran.result.step == 2 && ran.evaluations.empty();
    if (stopped) run(config, name);
    EXPECT_EQ(metrics_in(name), metrics_in(folder / "whole")) << stops;
    expect_same_weights(name, folder / "whole");
    EXPECT_EQ(run(config, name).result.steps_taken, 0);  // nothing is left
    EXPECT_EQ(metrics_in(name), metrics_in(folder / "whole")) << stops;
  }
  EXPECT_GE(early, 3);   // learning, reading
  EXPECT_GE(within, 1);  // the evaluation of step 2
}

TEST(Train, SameBitsForAnyNumberOfThreads) {
  const TemporaryFolder folder;
  const RunConfig config = tiny_run();
  const Ran want = run(config, folder / "1", 0, Context(1));
  for (const Index threads : {2, 3, 7}) {
    const std::string name = std::to_string(threads);
    EXPECT_EQ(run(config, folder / name, 0, Context(threads)).losses, want.losses) << threads;
    expect_same_weights(folder / name, folder / "1");
  }
}

/// Products of bf16 lose up to 2^-7 of the sizes of their terms, in all directions.
TEST(Train, Bf16WeightsLearnLikeF32OnesWithTheSameBitsForAnyThreads) {
  const TemporaryFolder folder;
  RunConfig config = tiny_run();
  const Ran wide = run(config, folder / "f32");
  config.model.weight_type = Type::bf16;
  for (const std::string& isa : supported_isas()) {
    const Ran narrow = run(config, folder / (isa + "1"), 0, Context(1, isa));
    for (std::size_t i = 0; i < wide.losses.size(); ++i)
      EXPECT_NEAR(narrow.losses[i], wide.losses[i], 0x1p-7 * wide.losses[i]) << i << " on " << isa;
    EXPECT_EQ(run(config, folder / (isa + "3"), 0, Context(3, isa)).losses, narrow.losses) << isa;
  }
}

/// Two batches that make one step are one batch of twice the size, as far as rounding goes.
TEST(Train, AccumulatedBatchesAreOne) {
  const TemporaryFolder folder;
  RunConfig config = tiny_run();
  config.model.dropout = config.model.attention_dropout = 0;
  // Short documents, whose last tokens predict nothing: batches differ in their targets.
  std::filesystem::create_directory(folder / "texts");
  for (int i = 0; i < 60; ++i)
    put(folder / ("texts/" + std::to_string(i) + ".txt"),
        std::string(5 + i % 13, static_cast<char>('a' + i % 7)) + std::string(1 + i % 5, 'z'));
  config.data.path = folder / "texts";
  const Ran whole = run(config, folder / "whole");
  config.data.batch_size = 2;
  config.train.accumulation_steps = 2;
  const Ran parts = run(config, folder / "parts");
  for (std::size_t i = 0; i < whole.losses.size(); ++i)
    EXPECT_NEAR(parts.losses[i], whole.losses[i], 1e-5 * whole.losses[i]) << i;
}

TEST(Train, LearnsToCopy) {
  const TemporaryFolder folder;
  RunConfig config = tiny_run();
  config.model.hidden_size = 32;
  config.model.intermediate_size = 64;
  config.model.positions = ModelConfig::Positions::learned;
  config.model.dropout = config.model.attention_dropout = 0;
  config.data.batch_size = 32;
  config.data.tokens = 16;
  config.data.symbols = 5;
  config.train.steps = 600;
  config.train.learning_rate = 1e-2;
  config.train.evaluate_every = 50;
  config.train.save_every = {};
  config.train.log_every = 100;
  config.train.target_accuracy = 0.99;
  const Ran ran = run(config, folder / "copy");
  EXPECT_EQ(ran.result.finish_reason, TrainResult::Finish::accuracy)
      << "exact " << ran.result.evaluation->exact << ", loss " << ran.result.evaluation->loss;
}

/// Masks that happen to fall on nothing leave batches without a target.
TEST(Train, BatchesWithoutTargetsAreNoCrash) {
  const TemporaryFolder folder;
  put(folder / "text.txt", std::string(2000, 'a'));
  RunConfig config = tiny_run();
  config.model.kind = ModelConfig::Kind::encoder;
  config.model.patterns = {full()};
  config.data.path = folder / "text.txt";
  config.data.objective = Objective::masked_token;
  config.data.batch_size = 1;
  config.data.tokens = 4;
  config.data.eval_batches = 3;
  config.data.mask_probability = 1e-9;
  const Ran ran = run(config, folder / "run");
  EXPECT_EQ(ran.result.step, config.train.steps);
  for (const Evaluation& evaluation : ran.evaluations) EXPECT_TRUE(std::isfinite(evaluation.loss));
}

/// Lines that are no objects, or objects of other things, are passed over; so is a torn last one.
TEST(Train, DamagedMetricsAreReadAsFarAsTheyGo) {
  const TemporaryFolder folder;
  const RunConfig config = tiny_run();
  run(config, folder / "run", 6);
  const std::string path = folder / "run/metrics.jsonl", good = get(path);
  put(path, good + "[1, 2]\n{\"step\": \"six\"}\n\xFF\xFE\n{\"step\": 7, \"lo");
  const RunStatus status = run_status(folder / "run");
  ASSERT_TRUE(status.last.has_value());
  EXPECT_EQ(status.saved, 6);
  run(config, folder / "run");
  run(config, folder / "whole");
  EXPECT_EQ(metrics_in(folder / "run"), metrics_in(folder / "whole"));
}

TEST(Train, AStateThatLacksSomethingIsNamed) {
  const TemporaryFolder folder;
  const RunConfig config = tiny_run();
  run(config, folder / "run", 3);
  {
    CheckpointStore store(folder / "run");
    Checkpoint checkpoint = store.load(3);
    checkpoint.state.erase("adam_steps");
    std::vector<NamedTensor> tensors;
    for (const auto& [name, tensor] : checkpoint.tensors) tensors.push_back({name, tensor});
    store.save(4, tensors, checkpoint.state);
  }
  try {
    run(config, folder / "run");
    ADD_FAILURE() << "a run continued without the steps of its moments";
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("checkpoint of step 4"), std::string::npos) << text;
    EXPECT_NE(text.find("adam_steps"), std::string::npos) << text;
  }
}

TEST(Train, ALossThatIsNoNumberMovesNothing) {
  const TemporaryFolder folder;
  RunConfig config = tiny_run();
  config.train.max_grad_norm = {};
  config.train.learning_rate = 1e30;  // the first steps tear the weights apart
  config.train.schedule.warmup_steps = 0;
  config.train.schedule.decay = Schedule::Decay::constant;
  try {
    run(config, folder / "torn");
    ADD_FAILURE() << "a run with a learning rate of 1e30 came to its end";
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("train: "), std::string::npos) << text;
    EXPECT_NE(text.find("saved as step"), std::string::npos) << text;
    const LoadedRun kept = load_run(folder / "torn");
    EXPECT_GE(kept.step, 1);
    EXPECT_NE(text.find("saved as step " + std::to_string(kept.step)), std::string::npos) << text;
  }
}

/// What is no whole number that fits is no step; what is no line is passed over.
TEST(Metrics, AreReadWhateverTheyHold) {
  const MetricsTail tail = metrics_tail_in(
      "{\"step\":7,\"loss\":1.5}\nnot a line\n[1]\n{\"step\":1e300,\"evaluation_loss\":null}\n"
      "{\"step\":8,\"lo");
  ASSERT_TRUE(tail.progress && tail.evaluation);
  EXPECT_EQ(tail.progress->step, 7);
  EXPECT_EQ(tail.progress->loss, 1.5);
  EXPECT_EQ(tail.evaluation->step, 0);
  EXPECT_TRUE(std::isnan(tail.evaluation->loss));
  EXPECT_EQ(metrics_tail_in("{\"step\":18446744073709551615,\"loss\":1}").progress->step, 0);
}

}  // namespace
}  // namespace rapt::test
