#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/files.h"
#include "base/threads/cancel_check.h"
#include "rapt/tensor.h"

namespace rapt::detail {

/// The file, or all files below a folder, those of one folder in the order of their bytes. Names
/// that begin with a dot and pictures in a folder are left out; links are followed. Throws
/// std::runtime_error if something is missing, neither file nor folder, or a link that leads back
/// to a folder above it.
std::vector<std::string> files_of(const std::string& path);

/// The bytes of a file in order. Throws std::runtime_error with the path if they cannot be read, or
/// if size or time of the file are not the same at its end as they were at its beginning.
class FileReader {
 public:
  explicit FileReader(const std::string& path, CancelCheck cancel_check = {});

  /// Checks for cancellation, then reads up to a MiB, valid until the next call; empty at the end.
  std::string_view next();

 private:
  InputFile file_;
  std::filesystem::file_time_type time_;
  Index offset_ = 0;
  std::string buffer_;
  CancelCheck cancel_check_;
};

/// Calls `take` with the bytes of a file in pieces of a MiB or little more, cut where every
/// byte-level tokenizer begins a word: before a space that follows a visible ASCII character. A
/// text without such a place for 16 MiB is cut between two characters, so that memory stays
/// bounded.
void read_pieces(const std::string& path, const std::function<void(std::string_view)>& take,
                 const CancelCheck& cancel_check = {});

/// The beginnings of all files of a path, `limit` bytes in all and from each the same part of it:
/// enough to train a tokenizer on. They end where read_pieces would cut.
std::vector<std::string> sample_texts(const std::string& path, Index limit,
                                      const CancelCheck& cancel_check = {});

/// Where to cut a text, not empty, whose continuation is not known: after byte `after`; 0:
/// nowhere.
std::size_t word_cut(std::string_view text, std::size_t after = 0);
/// The same, between two UTF-8 characters as near to the end as can be; the end if it is not UTF-8.
std::size_t character_cut(std::string_view text);

}  // namespace rapt::detail
