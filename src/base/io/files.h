#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/hash.h"
#include "rapt/tensor.h"

namespace rapt::detail {

// Files as the outside world has them: anything may be missing, short, full or broken. What the
// system refuses is std::system_error with the path, the byte it happened at and the system's
// reason; what a file lacks is std::runtime_error. Nothing is tried twice on the same descriptor: a
// failed fsync has lost its data already.

/// A regular file open for reading. Folders, pipes and devices are refused without waiting.
class InputFile {
 public:
  explicit InputFile(std::string path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  const std::string& path() const { return path_; }
  /// Bytes, as of opening.
  Index size() const { return size_; }
  /// Fills `buffer` from the given place on. Throws if the file ends before.
  void read(Index offset, std::span<std::byte> buffer) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  Index size_ = 0;
};

/// The whole file. Throws std::runtime_error before reading if it is longer than `limit` bytes.
std::string read_file(const std::string& path, Index limit);

/// How much was written, and its hash: what a manifest says of a file.
struct FileDigest {
  Index bytes = 0;
  Hash hash;
  bool operator==(const FileDigest&) const = default;
};
/// Reads the file once, a part at a time.
FileDigest digest_of(const std::string& path);

/// A file that did not exist before. It counts as written only once finish() has returned.
class OutputFile {
 public:
  /// Throws if the path exists already.
  explicit OutputFile(std::string path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Everything is on the disk and the file is closed.
  FileDigest finish();

 private:
  std::string path_;
  int descriptor_ = -1;
  Index size_ = 0;
  Hasher hasher_;
};

/// Puts `text` where `path` is, in one step: others see the old file or the new one, whole.
void replace_file(const std::string& path, std::string_view text);

/// What was made, renamed or removed in the folder is on the disk.
void sync_folder(const std::string& path);
/// As rename(2): a file takes the place of a file, a folder that of an empty folder.
void rename_path(const std::string& from, const std::string& to);
/// Exchanges two paths in one step.
void exchange_paths(const std::string& one, const std::string& other);
/// A new, empty folder. Throws if the path exists.
void make_folder(const std::string& path);
/// The entries of a folder, in ascending order.
std::vector<std::string> names_in(const std::string& folder);
/// The folder of a path: "." for a plain name.
std::string folder_of(const std::string& path);

}  // namespace rapt::detail
