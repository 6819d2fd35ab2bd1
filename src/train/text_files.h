#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/tensor.h"

namespace rapt {

/// The file, or all files below a folder, those of one folder in the order of their bytes. Names
/// that begin with a dot are left out; links are followed. Throws std::runtime_error if something
/// is missing, neither file nor folder, or a link that leads back to a folder above it.
std::vector<std::string> files_of(const std::string& path);

/// The bytes of a file in order. Throws std::runtime_error with path and offset if the file cannot
/// be read or is not the same at its end as at its beginning (size, time, inode).
class FileReader {
 public:
  explicit FileReader(std::string path);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  /// Up to a MiB, valid until the next call; empty at the end.
  std::string_view next();
  const std::string& path() const { return path_; }

 private:
  struct stat state() const;
  void check_unchanged() const;

  std::string path_;
  int file_ = -1;
  Index offset_ = 0;
  struct stat before_ {};
  std::vector<char> room_;
};

/// Hands the bytes of a file on in pieces of a MiB or little more, cut where every byte-level
/// tokenizer begins a word: before a space that follows a visible ASCII character. A text that goes
/// on for 16 MiB without such a place is cut between two characters all the same, so that memory
/// stays bounded.
void read_pieces(const std::string& path, const std::function<void(std::string_view)>& take);

/// The beginnings of all files of a path, `limit` bytes in all and from each the same part of it:
/// enough to learn a tokenizer from. They end where read_pieces would cut.
std::vector<std::string> sample_texts(const std::string& path, Index limit);

/// Where to cut a text whose continuation is not known; 0: nowhere good. Must not be empty.
std::size_t word_cut(std::string_view text);
/// Likewise, between two UTF-8 characters as near to the end as can be; the end if it is not UTF-8.
std::size_t character_cut(std::string_view text);

}  // namespace rapt
