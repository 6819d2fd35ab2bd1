#include <algorithm>

#include "base/check.h"
#include "base/indexed_vector.h"
#include "base/random.h"
#include "train/data/sources.h"

namespace rapt::detail {
namespace {

/// One item: what is read, and the places whose next token counts.
struct Row {
  std::vector<std::int32_t> tokens;
  Index first;  // the first place that is a target
};

/// A row as an item of the batch: every token predicts the next, those from `row.first` on count.
void append(Batch& batch, const Row& row, Index tokens) {
  batch.items += 1;
  batch.tokens = tokens;
  for (Index place = 0; place < tokens; ++place) {
    const auto next = to_size(place + 1);
    batch.inputs.push_back(next <= row.tokens.size() ? row.tokens[next - 1] : 0);
    const bool counts = place + 1 >= row.first && next < row.tokens.size();
    batch.targets.push_back(counts ? row.tokens[next] : -1);
  }
}

std::vector<std::int32_t> random_list(Index length, Index symbols, RandomStream& random) {
  IndexedVector<std::int32_t> list(length);
  for (std::int32_t& symbol : list) symbol = static_cast<std::int32_t>(1 + random.below(symbols));
  return list;
}

/// Reformer's: 0 w 0 w, the second w has to be predicted. An item of 2n tokens fits n - 1.
class CopyTask {
 public:
  static Index longest(Index tokens) { return tokens / 2 - 1; }
  static Row row(Index length, Index symbols, RandomStream& random) {
    Row row{{0}, length + 2};
    const auto list = random_list(length, symbols, random);
    row.tokens.insert(row.tokens.end(), list.begin(), list.end());
    row.tokens.push_back(0);
    row.tokens.insert(row.tokens.end(), list.begin(), list.end());
    return row;
  }
};

/// A list, 0, the list in ascending order, which has to be predicted. An item of 2n tokens fits
/// n, as nothing follows the last.
class SortTask {
 public:
  static Index longest(Index tokens) { return tokens / 2; }
  static Row row(Index length, Index symbols, RandomStream& random) {
    auto list = random_list(length, symbols, random);
    Row row{list, length + 1};
    row.tokens.push_back(0);
    std::sort(list.begin(), list.end());
    row.tokens.insert(row.tokens.end(), list.begin(), list.end());
    return row;
  }
};

class TaskData : public Data {
 public:
  TaskData(const DataOptions& options, Index vocab_size)
      : options_(options), vocab_size_(vocab_size) {}

  Batch batch(Index step) const override {
    check_step(step, options_.batch_size);
    return made(training_stream, step);
  }
  Index eval_batches() const override { return options_.eval_batches.value_or(0); }
  Batch eval_batch(Index index) const override {
    check_eval_batch(index, eval_batches());
    return made(evaluation_stream, index);
  }
  Index vocab_size() const override { return vocab_size_; }
  Index items_per_epoch() const override { return 0; }
  std::string describe() const override {
    return options_.path + ": " + grouped(options_.tokens) + " tokens, " +
           grouped(options_.symbols) + " symbols";
  }
  std::uint64_t fingerprint() const override {
    std::uint64_t sum = fingerprint_of(options_);
    for (const char letter : options_.path) sum = random_bits(sum, {letter});
    return random_bits(
        sum, {options_.symbols, options_.shortest.value_or(0), options_.pairs, options_.queries});
  }

 protected:
  virtual void append_item(Batch& batch, std::uint64_t bits) const = 0;
  const DataOptions& options() const { return options_; }

 private:
  static constexpr Index training_stream = 1, evaluation_stream = 2;

  Batch made(Index stream, Index number) const {
    Batch batch;
    for (Index item = 0; item < options_.batch_size; ++item)
      append_item(batch, random_bits(options_.seed, {stream, number, item}));
    return batch;
  }

  DataOptions options_;
  Index vocab_size_;
};

template <class Task>
class ListTask : public TaskData {
 public:
  explicit ListTask(const DataOptions& options)
      : TaskData(options, options.symbols + 1), longest_(Task::longest(options.tokens)) {
    check(options.tokens % 2 == 0 && longest_ >= 1, "data: ", options.path, " with ",
          options.tokens, " tokens, expected an even number that fits a symbol");
    const Index shortest = options.shortest.value_or(longest_);
    check(shortest >= 1 && shortest <= longest_, "data: ", options.path,
          " with a shortest list of ", shortest, ", expected 1 to ", longest_);
  }

 private:
  void append_item(Batch& batch, std::uint64_t bits) const override {
    RandomStream random(bits);
    const Index shortest = options().shortest.value_or(longest_);
    const Index length = shortest + random.below(longest_ - shortest + 1);
    append(batch, Task::row(length, options().symbols, random), options().tokens);
  }

  Index longest_;
};

/// Keys are 1 to symbols, values the numbers after them. Pairs come first, then zeros, and at the
/// end keys whose values have to be predicted in their place. The zeros put them beyond a window.
class RecallTask : public TaskData {
 public:
  explicit RecallTask(const DataOptions& options) : TaskData(options, 2 * options.symbols + 1) {
    check(options.pairs >= 1 && options.pairs <= options.symbols, "data: task:recall with ",
          options.pairs, " pairs, expected 1 to ", options.symbols, ", the number of symbols");
    check(options.queries >= 1 && options.queries <= options.pairs, "data: task:recall with ",
          options.queries, " queries, expected 1 to ", options.pairs, ", the number of pairs");
    check(2 * options.pairs + options.queries <= options.tokens, "data: task:recall with ",
          options.tokens, " tokens, expected at least ", 2 * options.pairs + options.queries,
          " for its pairs and queries");
  }

 private:
  void append_item(Batch& batch, std::uint64_t bits) const override {
    const Index symbols = options().symbols, tokens = options().tokens;
    const RandomOrder keys(symbols, random_bits(bits, {1}));
    const RandomOrder asked(options().pairs, random_bits(bits, {2}));
    const auto key = [&](Index pair) { return static_cast<std::int32_t>(1 + keys[pair]); };
    const auto value = [&](Index pair) {
      const Index number = random_below(random_bits(bits, {3, pair}), symbols);
      return static_cast<std::int32_t>(1 + symbols + number);
    };
    const auto begin = to_size(batch.items * tokens);
    batch.items += 1;
    batch.tokens = tokens;
    batch.inputs.resize(begin + to_size(tokens), 0);
    batch.targets.resize(begin + to_size(tokens), -1);
    for (Index pair = 0; pair < options().pairs; ++pair) {
      batch.inputs[begin + to_size(2 * pair)] = key(pair);
      batch.inputs[begin + to_size(2 * pair + 1)] = value(pair);
    }
    for (Index query = 0; query < options().queries; ++query) {
      const auto place = begin + to_size(tokens - options().queries + query);
      batch.inputs[place] = key(asked[query]);
      batch.targets[place] = value(asked[query]);
    }
  }
};

}  // namespace

std::unique_ptr<const Data> task_data(const DataOptions& options) {
  constexpr Index most_symbols = 1'000'000;
  check(options.symbols >= 1 && options.symbols <= most_symbols, "data: ", options.symbols,
        " symbols, expected 1 to ", most_symbols);
  if (options.path == "task:copy") return std::make_unique<ListTask<CopyTask>>(options);
  if (options.path == "task:sort") return std::make_unique<ListTask<SortTask>>(options);
  if (options.path == "task:recall") return std::make_unique<RecallTask>(options);
  fail("data: no task is called ", options.path, "; there are task:copy, task:recall, task:sort");
}

}  // namespace rapt::detail
