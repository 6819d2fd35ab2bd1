#pragma once

#include <memory>
#include <optional>
#include <string>

#include "rapt/tokenizer.h"
#include "train/batch.h"

namespace rapt {

/// Where batches come from. A batch is a function of options and step alone: nothing is drawn in
/// turn, nothing has to be saved, and a run that goes on at step n asks for batch n. Any thread may
/// ask at any time.
class Data {
 public:
  virtual ~Data() = default;
  /// The batch of a step, counted from 0 without end. Throws std::invalid_argument below 0.
  virtual Batch batch(Index step) const = 0;
  /// Batches of held-out data, the same at every evaluation; 0 where nothing is held out.
  virtual Index evaluations() const = 0;
  /// Throws std::invalid_argument unless 0 <= index < evaluations(). The last may be smaller.
  virtual Batch evaluation(Index index) const = 0;
  /// Inputs, sources and targets lie below this; the tokenizer's entries, or one more with a mask.
  virtual Index entries() const = 0;
  /// Items after which everything was seen once; 0: they never repeat.
  virtual Index items_per_epoch() const = 0;
  /// One line for people.
  virtual std::string describe() const = 0;
  /// Differs where data or options that decide about batches differ: whoever resumes a run asks
  /// whether it still reads the same.
  virtual std::uint64_t fingerprint() const = 0;
};

/// What is learnt from the data of a path.
enum class Learning {
  next_token,    // files are documents
  masked_token,  // likewise; some tokens are hidden and have to be found
  pairs,         // lines are source, tab, target
};

struct DataOptions {
  std::string path = {};  // a file, a folder, or task:copy, task:recall, task:sort
  Learning learning = Learning::next_token;
  Index items = 8;     // per batch
  Index tokens = 256;  // per item; with pairs the longest source or target
  std::uint64_t seed = 1;

  Index evaluations = 16;          // at most so many batches; 0: nothing is held out
  double held_out = 0.05;          // part of the data that is kept for evaluation,
  std::string held_out_path = {};  // or a file or folder of its own
  bool separate_documents = true;  // packed documents do not see one another
  double masked = 0.15;            // of the tokens

  Index symbols = 127;  // of a task
  Index shortest = 0;   // copy, sort: symbols of the shortest list; 0: every list fills its item
  Index pairs = 8;      // recall: keys with values
  Index queries = 4;    // recall: keys that are asked for
};

/// Whether the path names a task, which has numbers of its own and needs no tokenizer.
bool is_task(const DataOptions& options);

/// Opens what the options name; tokenizer is for files and folders.
/// Throws std::invalid_argument if an option is out of its range, and std::runtime_error if the
/// data cannot be read, do not hold what they should or are too short.
std::unique_ptr<const Data> open_data(const DataOptions& options,
                                      const std::optional<Tokenizer>& tokenizer = {});

}  // namespace rapt
