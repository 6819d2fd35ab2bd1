#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/threads/cancel_check.h"
#include "rapt/tokenizer.h"
#include "rapt/train.h"
#include "train/data/batch.h"

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

/// Whether the path names a task, which has numbers of its own and needs no tokenizer.
bool is_task(const DataOptions& options);

/// Throws std::invalid_argument if an option is out of its range, whatever the data is.
void check_data_options(const DataOptions& options);

/// Opens what the options name; tokenizer is for files and folders.
/// Throws std::invalid_argument if an option is out of its range, and std::runtime_error if the
/// data cannot be read, do not hold what they should or are too short.
std::unique_ptr<const Data> open_data(const DataOptions& options,
                                      const std::optional<Tokenizer>& tokenizer = {},
                                      const Pause& pause = {});

}  // namespace rapt
