#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/io/file_lock.h"
#include "base/numerics.h"
#include "formats/config/json.h"
#include "rapt/models/train.h"
#include "support/models.h"
#include "support/temporary_folder.h"
#include "train/run/checkpoint_store.h"
#include "train/run/folder_guard.h"

// What a run does with its folder, and with a world that gets in its way.
namespace rapt::test {
using namespace detail;
namespace {

namespace fs = std::filesystem;

RunConfig small_run() {
  RunConfig config;
  config.model = tiny_config();
  config.model.vocab_size = {};
  config.model.dropout = 0.1;
  config.data = {
      .path = "task:copy", .batch_size = 2, .tokens = 16, .eval_batches = 1, .symbols = 9};
  config.train.steps = 9;
  config.train.log_every = 1;
  config.train.evaluate_every = 3;
  config.train.save_every = {};  // only at the end
  return config;
}

RunConfig text_run(const TemporaryFolder& folder) {
  RunConfig config = small_run();
  std::string text;
  for (int i = 0; i < 200; ++i) text += "a cat sat on a mat; ";
  put(folder / "text.txt", text);
  config.data.path = folder / "text.txt";
  return config;
}

std::vector<std::string> notices_of(const RunConfig& config, const std::string& folder) {
  std::vector<std::string> notices;
  TrainEvents events;
  events.notice = [&](const std::string& line) { notices.push_back(line); };
  train(config, folder, ExistingRun::resume, events);
  return notices;
}

/// Numbers of the last checkpoint, and the lines of metrics without how fast it was.
std::pair<std::string, std::vector<Json>> outcome(const std::string& folder) {
  std::string numbers;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder + "/step-000009"))
    if (entry.path().extension() == ".safetensors") numbers += get(entry.path().string());
  std::vector<Json> lines;
  std::istringstream metrics(get(folder + "/metrics.jsonl"));
  for (std::string line; std::getline(metrics, line);) {
    lines.push_back(parse_json(line, "metrics"));
    lines.back().erase("tokens_per_second");
    lines.back().erase("of_peak");
  }
  return {numbers, lines};
}

struct Refusal {};  // no std::exception

TEST(TrainFolder, ACallbackThatThrowsLosesNoStep) {
  const TemporaryFolder folder;
  const RunConfig config = small_run();
  train(config, folder / "whole");
  const auto whole = outcome(folder / "whole");
  for (const Index at : {1, 3, 5, 9}) {
    for (const char* which : {"progress", "evaluation", "stop"}) {
      SCOPED_TRACE(which + std::to_string(at));
      const std::string run = folder / which + std::to_string(at);
      Index step = 0;
      const auto refuse = [&](const char* here) {
        if (std::string(here) == which && step >= at) throw Refusal();
      };
      TrainEvents events;
      events.progress = [&](const TrainProgress& p) {
        step = p.step;
        refuse("progress");
      };
      events.evaluation = [&](const Evaluation&) { refuse("evaluation"); };
      events.stop = [&] {
        refuse("stop");
        return false;
      };
      bool thrown = false;
      try {
        train(config, run, ExistingRun::resume, events);
      } catch (const Refusal&) {
        thrown = true;
      }
      if (thrown && step > 0) {
        EXPECT_EQ(CheckpointStore(run).latest(), step);
      }
      EXPECT_TRUE(thrown || (at == 9 && std::string(which) == "stop"));
      train(config, run);
      EXPECT_EQ(outcome(run), whole);
    }
  }
}

TEST(TrainFolder, FilesOfOthersAreNotWrittenOver) {
  const TemporaryFolder folder;
  for (const char* name : {"config.toml", "tokenizer.json", "metrics.jsonl"}) {
    const std::string run = folder / "of-" + name;
    fs::create_directory(run);
    put(run + "/" + name, "mine\n");
    for (const ExistingRun old : {ExistingRun::resume, ExistingRun::refuse}) {
      try {
        train(small_run(), run, old);
        ADD_FAILURE() << name << " was written over";
      } catch (const std::invalid_argument& error) {
        EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
      }
      EXPECT_EQ(get(run + "/" + name), "mine\n");
      EXPECT_EQ(std::distance(fs::directory_iterator(run), fs::directory_iterator()), 1);
    }
    train(small_run(), run, ExistingRun::overwrite);
    EXPECT_EQ(load_run(run).step, 9);
  }
}

TEST(TrainFolder, WhatWasChangedBehindARunsBackIsRefused) {
  const TemporaryFolder folder;
  const RunConfig config = text_run(folder);
  const std::string run = folder / "run";
  train(config, run);
  EXPECT_NO_THROW(load_run(run));
  const std::string tokenizer = get(run + "/tokenizer.json");
  put(run + "/tokenizer.json", tokenizer + " ");
  expect_broken([&] { load_run(run); }, {"tokenizer.json", "hash", "step 9"});
  expect_broken([&] { train(config, run); }, {"tokenizer.json", "hash", "step 9"});
  EXPECT_EQ(run_status(run).warnings.size(), 1u);
  put(run + "/tokenizer.json", tokenizer);
  const std::string toml = get(run + "/config.toml");
  for (const std::size_t place : {toml.size() / 2, toml.size() - 3, toml.find('\n') - 1}) {
    std::string other = toml;
    other[place] = other[place] == '1' ? '2' : '1';
    put(run + "/config.toml", other);
    expect_broken([&] { load_run(run); }, {"config.toml", "hash in its first line"});
    expect_broken([&] { train(config, run); }, {"config.toml", "hash in its first line"});
    expect_broken([&] { run_status(run); }, {"config.toml", "hash in its first line"});
  }
  for (const std::size_t bytes : {0, 10, 60}) {
    put(run + "/config.toml", toml.substr(0, bytes));
    expect_broken([&] { load_run(run); }, {"config.toml", "hash in its first line"});
  }
  put(run + "/config.toml", toml.substr(toml.find('\n') + 1));  // as older versions wrote it
  EXPECT_NO_THROW(load_run(run));
}

/// Saves the newest checkpoint once more with another state.
void change_state(const std::string& run, const std::function<void(Json&)>& change) {
  CheckpointStore store(run);
  Checkpoint checkpoint = store.load(*store.latest());
  change(checkpoint.state);
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : checkpoint.tensors) tensors.push_back({name, tensor});
  store.save(checkpoint.step, tensors, checkpoint.state);
}

TEST(TrainFolder, AnotherInstructionSetVersionOrNumericsRevisionIsReportedOnce) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  RunConfig config = text_run(folder);
  train(config, run);
  const auto told = [&](const char* words) {
    config.train.steps += 1;
    Index count = 0;
    for (const std::string& line : notices_of(config, run))
      count += line.find(words) != std::string::npos ? 1 : 0;
    return count;
  };
  EXPECT_EQ(told("bits"), 0);
  change_state(run, [](Json& state) {
    EXPECT_EQ(state.at("isa"), Context().isa());
    EXPECT_EQ(state.at("version"), version());
    EXPECT_EQ(state.at("numerics"), numerics_revision);
    state["isa"] = "abacus";
  });
  EXPECT_EQ(told("abacus"), 1);
  EXPECT_EQ(told("abacus"), 0);
  change_state(run, [](Json& state) { state["version"] = "0.0.1"; });
  EXPECT_EQ(told("rapt 0.0.1"), 1);
  change_state(run, [](Json& state) { state["numerics"] = numerics_revision + 1; });
  EXPECT_EQ(told(("numerics revision " + std::to_string(numerics_revision + 1)).c_str()), 1);
  EXPECT_EQ(told("bits"), 0);
  change_state(run,
               [](Json& state) { state.erase("numerics"); });  // a build before it was recorded
  EXPECT_EQ(told("numerics revision unknown"), 1);
  change_state(run, [](Json& state) {  // as older versions wrote it
    for (const char* key : {"isa", "version", "numerics", "tokenizer"}) state.erase(key);
  });
  EXPECT_EQ(told("bits"), 0);
  EXPECT_NO_THROW(load_run(run));
}

TEST(TrainFolder, WhatIsNewInAFolderIsDecidedUnderItsLock) {
  const TemporaryFolder folder;
  const std::string run = folder / "run", lock = run + "/" + lock_name;
  fs::create_directories(run);
  {
    const FileLock other(lock);
    EXPECT_THROW(FolderGuard{run}, std::runtime_error);  // nothing was looked at
    put(run + "/config.toml", "of the other");
  }
  {
    const FolderGuard guard(run);
    EXPECT_THROW(FileLock{lock}, std::runtime_error);  // until what is new has been removed
    put(run + "/metrics.jsonl", "of this one");
  }
  EXPECT_EQ(get(run + "/config.toml"), "of the other");
  EXPECT_FALSE(fs::exists(run + "/metrics.jsonl"));
  { const FolderGuard guard(folder / "a/b/c"); }
  EXPECT_FALSE(fs::exists(folder / "a"));
}

TEST(TrainFolder, ATakenFolderIsToldWithoutTheFlagsOfACommand) {
  const TemporaryFolder folder;
  const auto taken = [&](const std::string& run) {
    try {
      train(small_run(), run, ExistingRun::refuse);
    } catch (const FolderNotEmpty& error) {
      EXPECT_EQ(std::string(error.what()).find("--"), std::string::npos) << error.what();
      return error.holds();
    }
    ADD_FAILURE() << "no error";
    return FolderNotEmpty::Holds::run;
  };
  train(small_run(), folder / "run");
  EXPECT_EQ(taken(folder / "run"), FolderNotEmpty::Holds::run);
  fs::create_directories(folder / "notes");
  put(folder / "notes/metrics.jsonl", "mine");
  EXPECT_EQ(taken(folder / "notes"), FolderNotEmpty::Holds::other_files);
}

TEST(TrainFolder, MoreThanTheMachineHoldsIsRefusedBeforeAnythingIsRead) {
  const TemporaryFolder folder;
  RunConfig config = small_run();
  config.data.path = folder / "none.txt";
  config.data.batch_size = 1 << 27;
  try {
    train(config, folder / "run");
    ADD_FAILURE() << "was not refused";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("134217728 items of 16 tokens"), std::string::npos)
        << error.what();
  }
  EXPECT_FALSE(fs::exists(folder / "run"));
}

}  // namespace
}  // namespace rapt::test
