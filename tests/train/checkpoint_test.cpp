#include "train/run/checkpoint_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "support/refused.h"
#include "support/temporary_folder.h"
#include "train/run/manifest.h"

namespace rapt::test {
using namespace detail;
namespace {

namespace fs = std::filesystem;

class Checkpoints : public ::testing::Test {
 protected:
  /// Numbers that tell the step.
  static void save(CheckpointStore& store, Index step) {
    Tensor weights({3, 4}), moments({5}, Type::bf16), more({2, 2}, Type::f16);
    for (float& number : weights.numbers()) number = static_cast<float>(step) + 0.25f;
    for (Bf16& number : moments.numbers<Bf16>()) number = Bf16(static_cast<float>(step));
    const std::vector<NamedTensor> tensors{
        {"weights", weights}, {"moments", moments}, {"more", more}};
    store.save(step, tensors, {{"data", step * 100}, {"seed", 18446744073709551615u}, {"x", 0.1}});
  }
  static void expect_whole(const Checkpoint& checkpoint, Index step) {
    EXPECT_EQ(checkpoint.step, step);
    EXPECT_EQ(checkpoint.tensors.size(), 3u);
    for (const float number : checkpoint.tensors.at("weights").numbers())
      EXPECT_EQ(number, static_cast<float>(step) + 0.25f);
    for (const Bf16 number : checkpoint.tensors.at("moments").numbers<Bf16>())
      EXPECT_EQ(number, Bf16(static_cast<float>(step)));
    EXPECT_EQ(checkpoint.state["data"], step * 100);
    EXPECT_EQ(checkpoint.state["seed"].get<std::uint64_t>(), 18446744073709551615u);
    EXPECT_EQ(checkpoint.state["x"].get<double>(), 0.1);
  }
  /// The step is passed over with a notice that holds every word.
  void expect_passed_over(const std::vector<std::string>& words) {
    CheckpointStore store(run_);
    EXPECT_EQ(store.latest(), 10);
    const std::vector<std::string> notices = store.take_warnings();
    ASSERT_EQ(notices.size(), 1u);
    for (const std::string& word : words)
      EXPECT_NE(notices[0].find(word), std::string::npos) << word << " is not in: " << notices[0];
    expect_broken([&] { store.load(20); }, words);
    expect_whole(store.load(10), 10);
  }
  void save_10_and_20() {
    CheckpointStore store(run_, {.keep = 2, .shard_bytes = 60});
    save(store, 10);
    save(store, 20);
  }

  TemporaryFolder folder_;
  std::string run_ = folder_ / "run";
  std::string newest_ = run_ + "/step-000020";
};

TEST_F(Checkpoints, ComeBackAsTheyWere) {
  CheckpointStore store(run_, {.keep = 3, .shard_bytes = 50});
  EXPECT_EQ(store.latest(), std::nullopt);
  for (const Index step : {7, 8, 1'234'567}) save(store, step);
  EXPECT_EQ(store.steps(), (std::vector<Index>{7, 8, 1'234'567}));
  EXPECT_EQ(store.latest(), 1'234'567);
  for (const Index step : store.steps()) expect_whole(store.load(step), step);
  EXPECT_TRUE(fs::exists(run_ + "/step-000007/tensors-00002.safetensors"));
  EXPECT_TRUE(store.take_warnings().empty());
  expect_broken([&] { store.load(9); }, {"no checkpoint of step 9"});
}

TEST_F(Checkpoints, OldOnesGoAndNewerOnesStay) {
  CheckpointStore store(run_);
  for (const Index step : {1, 2, 3, 4}) save(store, step);
  EXPECT_EQ(store.steps(), (std::vector<Index>{3, 4}));
  for (const Index step : {1, 2}) save(store, step);  // a run that was taken up again at 0
  EXPECT_EQ(store.steps(), (std::vector<Index>{1, 2, 3, 4}));
  save(store, 3);
  expect_whole(store.load(3), 3);
  EXPECT_EQ(store.steps(), (std::vector<Index>{2, 3, 4}));
  EXPECT_EQ(std::distance(fs::directory_iterator(run_), {}), 4);  // and the lock
}

TEST_F(Checkpoints, MistakesOfTheCaller) {
  expect_refused([&] { CheckpointStore(run_, {.keep = 1}); }, {"keep is 1", "at least 2"});
  CheckpointStore store(run_);
  expect_refused([&] { save(store, -1); }, {"step is -1"});
  Tensor a({1});
  const std::vector<NamedTensor> twice{{"a", a}, {"a", a}};
  expect_refused([&] { store.save(1, twice, {}); }, {"\"a\" comes twice"});
  const std::vector<NamedTensor> once{{"a", a}};
  expect_refused([&] { store.save(1, once, {{"loss", std::nan("")}}); }, {"cannot be written"});
  expect_refused([&] { store.save(1, once, {{"name", "\xFF"}}); }, {"cannot be written"});
  EXPECT_EQ(store.latest(), std::nullopt);
  EXPECT_EQ(std::distance(fs::directory_iterator(run_), {}), 1);  // nothing but the lock
  store.save(1, once, {});
  EXPECT_EQ(store.latest(), 1);
}

TEST_F(Checkpoints, OneStoreAtATime) {  // F-15, F-16
  {
    const CheckpointStore store(run_);
    expect_broken([&] { CheckpointStore second(run_); },
                  {run_ + "/lock", "is held by process " + std::to_string(getpid())});
  }
  put(run_ + "/lock", "99999999\n");  // a dead process holds nothing
  EXPECT_NO_THROW(CheckpointStore{run_});
  const CheckpointStore store(run_);
  const pid_t child = fork();
  if (child == 0) {
    try {
      CheckpointStore second(run_);
    } catch (const std::runtime_error&) {
      _exit(7);
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST_F(Checkpoints, ALockIsNeverAFileOfOthers) {
  { const CheckpointStore store(run_); }
  const std::string lock = run_ + "/lock", other = run_ + "/other";
  const auto refused = [&](const char* words) {
    expect_broken([&] { CheckpointStore store(run_); }, {lock, words});
    fs::remove(lock);
  };
  put(other, "mine");
  fs::remove(lock);
  fs::create_symlink(other, lock);
  refused("is a symbolic link");
  fs::create_symlink(run_ + "/nowhere", lock);
  refused("is a symbolic link");
  EXPECT_FALSE(fs::exists(run_ + "/nowhere"));
  fs::create_hard_link(other, lock);
  refused("is no lock of rapt");
  put(lock, "\x1b[31m");
  refused("is no lock of rapt");
  fs::create_directory(lock);
  refused("Is a directory");
  ASSERT_EQ(mkfifo(lock.c_str(), 0666), 0);
  refused("is a pipe");
  EXPECT_EQ(get(other), "mine");
  put(other, "");  // could be a lock, but has a name elsewhere
  fs::create_hard_link(other, lock);
  { const CheckpointStore store(run_); }
  EXPECT_EQ(get(other), "");
}

TEST_F(Checkpoints, LeftoversOfTheDeadAreCleared) {  // F-16
  save_10_and_20();
  for (const char* name : {"config.toml.tmp.12", "metrics.jsonl.tmp.7", "tokenizer.json.tmp.1"})
    put(run_ + "/" + name, "half");
  for (const char* name : {"config.toml.tmp.mine", "metrics.jsonl.tmp.", "notes.tmp.7"})
    put(run_ + "/" + name, "mine");
  fs::create_directories(run_ + "/step-000030.tmp.1234/inside");
  fs::create_directories(run_ + "/step-000010.tmp.77");
  fs::create_directories(run_ + "/mine.tmp.5");
  fs::create_directories(run_ + "/step-30");  // not our spelling
  CheckpointStore store(run_);
  EXPECT_FALSE(fs::exists(run_ + "/step-000030.tmp.1234"));
  for (const char* name : {"config.toml.tmp.12", "metrics.jsonl.tmp.7", "tokenizer.json.tmp.1"})
    EXPECT_FALSE(fs::exists(run_ + "/" + name)) << name;
  for (const char* name : {"config.toml.tmp.mine", "metrics.jsonl.tmp.", "notes.tmp.7"})
    EXPECT_EQ(get(run_ + "/" + name), "mine");
  EXPECT_FALSE(fs::exists(run_ + "/step-000010.tmp.77"));
  EXPECT_TRUE(fs::exists(run_ + "/mine.tmp.5"));
  EXPECT_EQ(store.latest(), 20);
}

TEST_F(Checkpoints, AnyShorterFileIsNoticed) {  // F-13
  save_10_and_20();
  for (const auto& entry : fs::directory_iterator(newest_)) {
    const std::string path = entry.path().string(), whole = get(path);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      put(path, std::string_view(whole).substr(0, length));
      EXPECT_THROW(verified_manifest(newest_, 20), std::runtime_error) << path << " " << length;
    }
    put(path, whole + "x");
    EXPECT_THROW(verified_manifest(newest_, 20), std::runtime_error) << path;
    put(path, whole);
  }
  put(newest_ + "/manifest.json", "");
  expect_passed_over({"step-000020/manifest.json", "is not a manifest"});
}

TEST_F(Checkpoints, AnyFlippedBitIsNoticed) {  // F-14
  save_10_and_20();
  for (const auto& entry : fs::directory_iterator(newest_)) {
    const std::string path = entry.path().string(), whole = get(path);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      std::string flipped = whole;
      flipped[i] = static_cast<char>(flipped[i] ^ 1 << i % 8);
      put(path, flipped);
      EXPECT_THROW(verified_manifest(newest_, 20), std::runtime_error) << path << " byte " << i;
    }
    put(path, whole);
  }
  EXPECT_NO_THROW(verified_manifest(newest_, 20));
  const std::string shard = newest_ + "/tensors-00001.safetensors";
  std::string bytes = get(shard);
  bytes.back() ^= 1;
  put(shard, bytes);
  expect_passed_over({shard, "does not match the hash"});
}

TEST_F(Checkpoints, MixturesAreNoticed) {  // CO-11
  save_10_and_20();
  const std::string older = run_ + "/step-000010", shard = "/tensors-00001.safetensors";
  const std::string mine = get(newest_ + shard), manifest = get(newest_ + "/manifest.json");
  put(newest_ + shard, get(older + shard));
  expect_passed_over({shard, "does not match"});
  put(newest_ + shard, mine);
  put(newest_ + "/manifest.json", get(older + "/manifest.json"));
  expect_passed_over({"is of step 10, expected 20"});
  put(newest_ + "/manifest.json", manifest);
  put(newest_ + "/extra", "");
  expect_passed_over({"extra", "is not in the manifest"});
  fs::remove(newest_ + "/extra");
  fs::remove(newest_ + shard);
  expect_passed_over({shard, "No such file"});
  fs::create_directory(newest_ + shard);
  expect_passed_over({shard, "is a folder"});
}

TEST_F(Checkpoints, NewerVersionsAreRefused) {  // CO-12
  save_10_and_20();
  const std::string path = newest_ + "/manifest.json";
  std::string body = get(path).substr(54);
  body = body.substr(0, body.size() - 2);
  const std::size_t at = body.find("\"version\":1");
  ASSERT_NE(at, std::string::npos);
  body.replace(at, 11, "\"version\":2");
  const std::string hash = hash_of(std::as_bytes(std::span(body))).text();
  put(path, "{\"hash\":\"" + hash + "\",\"manifest\":" + body + "}\n");
  CheckpointStore store(run_);
  expect_broken([&] { store.latest(); }, {path, "has version 2", "up to 1"});
}

TEST_F(Checkpoints, AllDamagedIsNone) {
  save_10_and_20();
  fs::remove(newest_ + "/manifest.json");
  fs::remove(run_ + "/step-000010/manifest.json");
  CheckpointStore store(run_);
  EXPECT_EQ(store.latest(), std::nullopt);
  EXPECT_EQ(store.take_warnings().size(), 2u);
  save(store, 20);  // in the place of a damaged one
  EXPECT_EQ(store.latest(), 20);
}

TEST_F(Checkpoints, AFolderThatWentAwayIsAnError) {  // F-11
  CheckpointStore store(run_);
  save(store, 1);
  fs::rename(run_, folder_ / "elsewhere");
  expect_broken([&] { save(store, 2); }, {"step-000002", "No such file"});
  put(run_, "a file now");
  expect_broken([&] { save(store, 2); }, {"step-000002", "Not a directory"});
  fs::remove(run_);
  fs::rename(folder_ / "elsewhere", run_);
  save(store, 2);
  expect_whole(store.load(2), 2);
}

}  // namespace
}  // namespace rapt::test
