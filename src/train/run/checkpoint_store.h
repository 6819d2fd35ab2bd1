#pragma once

#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/file_lock.h"
#include "formats/config/json.h"
#include "formats/tensors/safetensors_file.h"
#include "rapt/tensor.h"

namespace rapt::detail {

/// The file in a run's folder that keeps other processes out.
inline constexpr const char* lock_name = "lock";
/// The files that training writes next to it and to the checkpoints.
inline constexpr const char* config_name = "config.toml";
inline constexpr const char* tokenizer_name = "tokenizer.json";
inline constexpr const char* metrics_name = "metrics.jsonl";
inline constexpr std::array<std::string_view, 3> run_file_names = {config_name, tokenizer_name,
                                                                   metrics_name};

struct CheckpointOptions {
  Index keep = 2;                            // checkpoints, at least 2
  Index shard_bytes = Index{2'000'000'000};  // of one file, unless one tensor alone is larger
  bool locked = false;                       // the caller holds the lock of the folder
  bool reads_only = false;  // nothing is locked, made or cleared away; a run may be writing here
};

/// All that was saved at one step.
struct Checkpoint {
  Index step = 0;
  std::map<std::string, Tensor> tensors;
  Json state;
};

/// The checkpoints of one run: folders step-000100 with files of tensors and a manifest.json, which
/// lists every file with its length and hash and is guarded by a hash of its own.
///
/// At every instant, whatever fails, a checkpoint that was complete before is still complete, or a
/// newer one is; and no checkpoint is ever a mixture of two steps. A checkpoint is written next to
/// its place, brought to the disk, renamed, and only then older ones go. What counts is what the
/// manifests say, never a pointer.
///
/// One store at a time per folder: a lock, which a process loses with its life, keeps others out.
/// What files do wrong is std::runtime_error.
class CheckpointStore {
 public:
  /// Makes the folder, takes the lock unless the caller has it, and clears away what writers that
  /// died have left. Throws if another process has the lock.
  explicit CheckpointStore(std::string folder, CheckpointOptions options = {});
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;

  /// If it throws, existing checkpoints are unchanged; the caller may continue and save again.
  /// A step that is there already is replaced. Steps above this one are left alone. Throws
  /// std::invalid_argument if a name comes twice or the state is not what JSON can say (NaN).
  void save(Index step, std::span<const NamedTensor> tensors, const Json& state);

  const std::string& folder() const { return folder_; }

  /// Removes all checkpoints.
  void clear();

  /// Steps that have a folder, damaged or not, in ascending order.
  std::vector<Index> steps() const;
  /// The newest step that is whole; every byte is read. Each damaged one on the way is a warning.
  /// Throws if a newer rapt has written the newest one.
  std::optional<Index> latest();
  /// Throws, with the reason, if the step is missing or damaged.
  Checkpoint load(Index step) const;
  /// What was saved at the step besides its tensors, whose files are not looked at.
  Json state_of(Index step) const;
  /// What the user should see: damaged checkpoints, old ones that could not be removed. Each once.
  std::vector<std::string> take_warnings();

 private:
  std::string path_of(Index step) const;
  /// Where a checkpoint is while it is written or removed.
  std::string away_path(Index step) const;
  void clear_leftovers();
  void write_files(const std::string& folder, Index step, std::span<const NamedTensor> tensors,
                   const Json& state) const;
  void remove_old(Index newest);
  void remove(Index step);

  std::string folder_;
  std::optional<FileLock> lock_;  // unless it reads only or the caller has it
  CheckpointOptions options_;
  std::vector<std::string> warnings_;
};

}  // namespace rapt::detail
