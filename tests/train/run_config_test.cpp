#include "train/run/run_config.h"

#include <gtest/gtest.h>

#include <fstream>

#include "model/config/renamed_keys.h"
#include "support/refused.h"
#include "support/temporary_folder.h"

namespace rapt::test {
using namespace detail;
namespace {

/// A config without any value that may be absent, and with patterns that are no leaves.
RunConfig bare_config() {
  RunConfig config;
  config.model.patterns = {causal() & window(3, 0), full()};
  config.train.max_grad_norm = {};
  config.train.evaluate_every = config.train.save_every = {};
  return config;
}

/// The same with all of them.
RunConfig full_config() {
  RunConfig config;
  config.model.vocab_size = 300;
  config.model.kv_heads = 2;
  config.model.head_dim = 10;
  config.model.intermediate_size = 77;
  config.model.softcap = 30;
  config.data.eval_path = "none";  // a path that is called so is a path
  config.data.shortest = 3;
  config.tokenizer.path = "tokenizer.json";
  config.train.max_grad_norm = 0.5;
  config.train.patience = 4;
  config.train.target_accuracy = 0.9;
  return config;
}

TEST(RunConfig, IsTheSameAfterWritingAndReading) {
  const TemporaryFolder folder;
  for (const RunConfig& config : {RunConfig(), bare_config(), full_config()}) {
    std::ofstream(folder / "config.toml") << to_toml(config);
    const RunConfig read = read_run_config(folder / "config.toml");
    EXPECT_EQ(to_json(read), to_json(config)) << to_toml(config);
    EXPECT_EQ(to_json(run_config_from(to_json(config), "json")), to_json(config));
  }
}

TEST(RunConfig, LeavesOutWhatIsNone) {
  const std::string plain = to_toml(RunConfig()), bare = to_toml(bare_config());
  for (const char* key : {"kv_heads", "softcap", "eval_path", "patience", "vocab_size = \"none\""})
    EXPECT_EQ(plain.find(key), std::string::npos) << key;
  EXPECT_NE(plain.find("max_grad_norm = 1.0"), std::string::npos) << plain;
  EXPECT_NE(bare.find("max_grad_norm = \"none\""), std::string::npos) << bare;
}

TEST(RunConfig, TakesNoneForNumbersThatMayBeAbsent) {
  const std::vector<std::string> sets = {"train.max_grad_norm=none", "train.save_every=none",
                                         "model.kind=encoder-decoder", "model.encoder_layers=2"};
  const RunConfig config = read_run_config({}, sets);
  EXPECT_FALSE(config.train.max_grad_norm);
  EXPECT_FALSE(config.train.save_every);
  EXPECT_EQ(config.model.kind, ModelConfig::Kind::encoder_decoder);
  EXPECT_FALSE(config.model.vocab_size);
  const std::vector<std::string> steps = {"train.steps=none"};
  EXPECT_THROW(read_run_config({}, steps), std::runtime_error);
}

TEST(RunConfig, NamesTheNewKeyOfAnOldOne) {
  const Json defaults = to_json(RunConfig());
  for (const RenamedKey& key : renamed_keys) {
    const Json object = {{key.section, {{key.before, 1}}}};
    const std::string section = std::string(key.section) + ".";
    expect_broken([&] { run_config_from(object, "old.toml"); },
                  {"old.toml", "`" + section + key.before + "`", "`" + section + key.now + "`"});
    EXPECT_TRUE(defaults.at(key.section).contains(key.now)) << key.now;
    EXPECT_FALSE(defaults.at(key.section).contains(key.before)) << key.before;
  }
}

TEST(RunConfig, RefusesWhatMakesNoSense) {
  const auto refused = [](const char* set, const std::vector<std::string>& words) {
    const std::vector<std::string> sets = {set};
    expect_refused([&] { read_run_config({}, sets); }, words);
  };
  refused("train.evaluate_every=0", {"train.evaluate_every is 0", "at least 1, or \"none\""});
  refused("train.max_grad_norm=0", {"train.max_grad_norm is 0", "more than 0, or \"none\""});
  refused("train.target_accuracy=2", {"train.target_accuracy is 2"});
  refused("train.warmup_steps=1000", {"steps is 1000", "warmup_steps"});
  refused("model.kv_heads=0", {"kv_heads is 0", "at least 1"});
  refused("model.softcap=0", {"softcap is 0", "leave it out"});
  refused("model.patterns=causal & & x", {"column 10"});
  refused("nothing", {"section.key=value"});
}

}  // namespace
}  // namespace rapt::test
