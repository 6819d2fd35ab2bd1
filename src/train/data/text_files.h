#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/files.h"
#include "base/threads/cancel_check.h"
#include "rapt/tensor.h"

namespace rapt {

/// The file, or all files below a folder, those of one folder in the order of their bytes. Names
/// that begin with a dot and pictures in a folder are left out; links are followed. Throws
/// std::runtime_error if something is missing, neither file nor folder, or a link that leads back
/// to a folder above it.
std::vector<std::string> files_of(const std::string& path);

/// The bytes of a file in order. Throws std::runtime_error with the path if they cannot be read, or
/// if size or time of the file are not the same at its end as they were at its beginning.
class FileReader {
 public:
  explicit FileReader(const std::string& path, Pause pause = {});

  /// A pause, then up to a MiB, valid until the next call; empty at the end.
  std::string_view next();

 private:
  InputFile file_;
  std::filesystem::file_time_type time_;
  Index offset_ = 0;
  std::string room_;
  Pause pause_;
};

/// Hands the bytes of a file on in pieces of a MiB or little more, cut where every byte-level
/// tokenizer begins a word: before a space that follows a visible ASCII character. A text that goes
/// on for 16 MiB without such a place is cut between two characters all the same, so that memory
/// stays bounded.
void read_pieces(const std::string& path, const std::function<void(std::string_view)>& take,
                 const Pause& pause = {});

/// The beginnings of all files of a path, `limit` bytes in all and from each the same part of it:
/// enough to learn a tokenizer from. They end where read_pieces would cut.
std::vector<std::string> sample_texts(const std::string& path, Index limit,
                                      const Pause& pause = {});

/// Where to cut a text, not empty, whose continuation is not known: behind byte `after`; 0:
/// nowhere.
std::size_t word_cut(std::string_view text, std::size_t after = 0);
/// Likewise, between two UTF-8 characters as near to the end as can be; the end if it is not UTF-8.
std::size_t character_cut(std::string_view text);

}  // namespace rapt
