#include "train/run/checkpoint_store.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <system_error>

#include "base/check.h"
#include "base/io/check_input.h"
#include "base/sizes.h"
#include "train/run/manifest.h"

namespace rapt::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view step_prefix = "step-";
constexpr std::string_view fresh_mark = ".tmp.";  // being written or removed

std::string numbered(std::string_view prefix, Index number, std::size_t digits) {
  const std::string text = std::to_string(number);
  return std::string(prefix) + std::string(digits - std::min(digits, text.size()), '0') + text;
}

/// The step of a folder called step-000100; nothing if it is called otherwise.
std::optional<Index> step_of(const std::string& name) {
  if (!name.starts_with(step_prefix)) return std::nullopt;
  Index step = -1;
  const char* begin = name.data() + step_prefix.size();
  const char* end = name.data() + name.size();
  const auto [at, error] = std::from_chars(begin, end, step);
  const bool spelled =
      error == std::errc() && at == end && step >= 0 && name == numbered(step_prefix, step, 6);
  return spelled ? std::optional(step) : std::nullopt;
}

/// Nothing depends on it: what stays is cleared away by the next store.
void try_remove(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

/// Whether a name is that of something unfinished which a run writes here: what it will be called,
/// ".tmp." and the number of a process.
bool is_leftover(const std::string& name) {
  const std::size_t mark = name.rfind(fresh_mark);
  if (mark == std::string::npos) return false;
  const std::string process = name.substr(mark + fresh_mark.size());
  if (process.empty() || process.find_first_not_of("0123456789") != std::string::npos) return false;
  const std::string finished = name.substr(0, mark);
  return step_of(finished) || std::ranges::count(run_file_names, finished) > 0;
}

void check_names(std::span<const NamedTensor> tensors) {
  std::set<std::string_view> names;
  for (const NamedTensor& tensor : tensors)
    check(names.insert(tensor.name).second, "CheckpointStore::save: tensor ",
          printable(tensor.name), " comes twice");
}

/// Whether a checkpoint of the step was there already. It is where the new one was, then.
enum class Place { free, taken };

Place put_in_place(const std::string& fresh, const std::string& place) {
  if (fs::exists(place)) {
    exchange_paths(fresh, place);  // at no time is there neither
    return Place::taken;
  }
  rename_path(fresh, place);
  return Place::free;
}

/// Runs of tensors that go into one file each.
std::vector<std::span<const NamedTensor>> shards_of(std::span<const NamedTensor> tensors,
                                                    Index shard_bytes) {
  std::vector<std::span<const NamedTensor>> shards;
  std::size_t begin = 0;
  Index bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const AnyView& numbers = tensors[i].numbers;
    const Index here = numbers.shape().elements() * static_cast<Index>(size_of(numbers.type()));
    if (i > begin && bytes + here > shard_bytes) {
      shards.push_back(tensors.subspan(begin, i - begin));
      begin = i;
      bytes = 0;
    }
    bytes += here;
  }
  if (begin < tensors.size()) shards.push_back(tensors.subspan(begin));
  return shards;
}

}  // namespace

CheckpointStore::CheckpointStore(std::string folder, CheckpointOptions options)
    : folder_(std::move(folder)), options_(options) {
  check(options_.keep >= 2, "CheckpointStore: keep is ", options_.keep, ", expected at least 2");
  check(options_.shard_bytes > 0, "CheckpointStore: shard_bytes is ", options_.shard_bytes,
        ", expected more than 0");
  if (options_.reads_only) return;
  if (fs::create_directories(folder_)) sync_folder(folder_of(folder_));
  if (!options_.locked) lock_.emplace(folder_ + "/" + lock_name);
  clear_leftovers();
}

std::string CheckpointStore::path_of(Index step) const {
  return folder_ + "/" + numbered(step_prefix, step, 6);
}

std::string CheckpointStore::away_path(Index step) const {
  return path_of(step) + std::string(fresh_mark) + std::to_string(::getpid());
}

/// We hold the lock, so the process that was writing here is dead.
void CheckpointStore::clear_leftovers() {
  for (const std::string& name : names_in(folder_))
    if (is_leftover(name)) try_remove(folder_ + "/" + name);
}

void CheckpointStore::save(Index step, std::span<const NamedTensor> tensors, const Json& state) {
  check(!options_.reads_only, "CheckpointStore::save: the store was opened for reading only");
  check(step >= 0, "CheckpointStore::save: step is ", step, ", expected at least 0");
  check_names(tensors);
  const std::string fresh = away_path(step);
  try_remove(fresh);  // of an attempt that failed and could not clean up
  make_folder(fresh);
  Place place = Place::free;
  try {
    write_files(fresh, step, tensors, state);
    sync_folder(fresh);
    place = put_in_place(fresh, path_of(step));
  } catch (...) {
    try_remove(fresh);
    throw;
  }
  // If this fails, what was replaced stays next to the new one, which may not be on the disk yet.
  sync_folder(folder_);
  if (place == Place::taken) try_remove(fresh);
  try {
    remove_old(step);
  } catch (const std::system_error& error) {
    // The new checkpoint is safe; that is no reason to stop.
    warnings_.push_back(std::string("old checkpoints cannot be removed: ") + error.what());
  }
}

void CheckpointStore::write_files(const std::string& folder, Index step,
                                  std::span<const NamedTensor> tensors, const Json& state) const {
  Manifest manifest{.step = step, .files = {}, .state = state};
  for (const auto& shard : shards_of(tensors, options_.shard_bytes)) {
    const auto number = static_cast<Index>(manifest.files.size()) + 1;
    const std::string name = numbered("tensors-", number, 5) + ".safetensors";
    manifest.files.push_back({name, write_safetensors(folder + "/" + name, shard)});
  }
  OutputFile file(folder + "/" + manifest_name);
  file.write(text_of(manifest));
  file.finish();
}

void CheckpointStore::remove_old(Index newest) {
  std::vector<Index> old = steps();
  std::erase_if(old, [&](Index step) { return step > newest; });
  old.resize(old.size() - std::min(old.size(), to_size(options_.keep)));
  for (const Index step : old) remove(step);
}

/// Renamed first: half a checkpoint is never found under the name of a whole one.
void CheckpointStore::remove(Index step) {
  rename_path(path_of(step), away_path(step));
  fs::remove_all(away_path(step));
}

void CheckpointStore::clear() {
  for (const Index step : steps()) remove(step);
}

std::vector<Index> CheckpointStore::steps() const {
  std::vector<Index> steps;
  for (const std::string& name : names_in(folder_))
    if (const auto step = step_of(name)) steps.push_back(*step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<Index> CheckpointStore::latest() {
  const std::vector<Index> steps = this->steps();
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    try {
      verified_manifest(path_of(*step), *step);
      return *step;
    } catch (const NewerManifest&) {
      throw;
    } catch (const std::runtime_error& error) {
      warnings_.push_back("checkpoint of step " + std::to_string(*step) +
                          " is damaged and passed over: " + error.what());
    }
  }
  return std::nullopt;
}

Checkpoint CheckpointStore::load(Index step) const {
  const std::string folder = path_of(step);
  check_input(fs::is_directory(folder), folder, ": there is no checkpoint of step ", step);
  Manifest manifest = verified_manifest(folder, step);
  Checkpoint checkpoint{.step = step, .tensors = {}, .state = std::move(manifest.state)};
  for (const Manifest::File& listed : manifest.files) {
    const SafetensorsFile file(folder + "/" + listed.name);
    for (const StoredTensor& tensor : file.tensors())
      check_input(checkpoint.tensors.emplace(tensor.name, file.read(tensor.name)).second,
                  file.path(), ": tensor ", printable(tensor.name), " is in another file too");
  }
  return checkpoint;
}

Json CheckpointStore::state_of(Index step) const {
  const std::string source = path_of(step) + "/" + manifest_name;
  return parse_manifest(read_file(source, JsonLimits{}.bytes), source).state;
}

std::vector<std::string> CheckpointStore::take_warnings() { return std::exchange(warnings_, {}); }

}  // namespace rapt::detail
