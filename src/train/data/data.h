#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/threads/cancel_check.h"
#include "rapt/models/tokenizer.h"
#include "rapt/models/train.h"
#include "train/data/batch.h"

namespace rapt::detail {

/// A source of batches. A batch is a function of options and step alone: there is no state to save,
/// and a run that resumes at step n asks for batch n. Any thread may ask at any time.
class Data {
 public:
  virtual ~Data() = default;
  /// The batch of a step, counted from 0 without end. Throws std::invalid_argument below 0.
  virtual Batch batch(Index step) const = 0;
  /// Batches for evaluation, the same every time; 0: no evaluation.
  virtual Index eval_batches() const = 0;
  /// Throws std::invalid_argument unless 0 <= index < evaluations(). The last may be smaller.
  virtual Batch eval_batch(Index index) const = 0;
  /// Inputs, sources and targets are below this: the tokenizer's vocab_size, or one more with a
  /// mask.
  virtual Index vocab_size() const = 0;
  /// Items after which everything was seen once; 0: they never repeat.
  virtual Index items_per_epoch() const = 0;
  /// One line for people.
  virtual std::string describe() const = 0;
  /// Differs if data or options that decide about batches differ: a run that resumes compares it.
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
                                      const CancelCheck& cancel_check = {});

}  // namespace rapt::detail
