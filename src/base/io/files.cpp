// Only models read and write files.
#ifdef RAPT_MODELS

#include "base/io/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "base/io/check_input.h"
#include "base/io/descriptor.h"
#include "base/io/system_call.h"
#include "base/sizes.h"

namespace rapt::detail {
namespace {

/// Linux gives at most this much in one call.
constexpr std::size_t largest_transfer = std::size_t{1} << 30;

}  // namespace

InputFile::InputFile(std::string path)
    : path_(std::move(path)), descriptor_(open_regular(path_, O_RDONLY)) {
  struct stat about {};
  if (::fstat(descriptor_, &about) == 0) {
    size_ = about.st_size;
    return;
  }
  const int reason = errno;
  ::close(descriptor_);
  fail_system(reason, path_, ": cannot be examined");
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void InputFile::read(Index offset, std::span<std::byte> buffer) const {
  while (!buffer.empty()) {
    const ssize_t got = uninterrupted([&] {
      return ::pread(descriptor_, buffer.data(), std::min(buffer.size(), largest_transfer), offset);
    });
    if (got < 0) fail_system(errno, path_, ": cannot be read at byte ", offset);
    if (got == 0)
      fail_input(path_, ": ends at byte ", offset, ", ", buffer.size(), " bytes before it should");
    buffer = buffer.subspan(to_size(got));
    offset += got;
  }
}

std::string read_file(const std::string& path, Index limit) {
  const InputFile file(path);
  if (file.size() > limit)
    fail_input(path, ": is ", file.size(), " bytes long, the limit is ", limit);
  std::string text(to_size(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

FileDigest digest_of(const std::string& path) {
  const InputFile file(path);
  std::vector<std::byte> part(std::size_t{1} << 20);
  Hasher hasher;
  for (Index offset = 0; offset < file.size();) {
    const auto here = std::min<Index>(static_cast<Index>(part.size()), file.size() - offset);
    const auto buffer = std::span(part).first(to_size(here));
    file.read(offset, buffer);
    hasher.add(buffer);
    offset += here;
  }
  return {file.size(), hasher.hash()};
}

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  descriptor_ = open_descriptor(path_, O_WRONLY | O_CREAT | O_EXCL);
  if (descriptor_ < 0) fail_system(errno, path_, ": cannot be created");
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  hasher_.add(bytes);
  while (!bytes.empty()) {
    const ssize_t put = uninterrupted([&] {
      return ::write(descriptor_, bytes.data(), std::min(bytes.size(), largest_transfer));
    });
    if (put < 0) fail_system(errno, path_, ": cannot be written at byte ", size_);
    if (put == 0) fail_input(path_, ": nothing was written at byte ", size_);
    bytes = bytes.subspan(to_size(put));
    size_ += put;
  }
}

FileDigest OutputFile::finish() {
  if (::fsync(descriptor_) != 0) fail_system(errno, path_, ": cannot be brought to the disk");
  // Linux has given up the descriptor even if a signal came in between.
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR)
    fail_system(errno, path_, ": cannot be closed");
  return {size_, hasher_.hash()};
}

void replace_file(const std::string& path, std::string_view text) {
  const std::string fresh = path + ".tmp." + std::to_string(::getpid());
  ::unlink(fresh.c_str());  // of a writer that died and had our number
  OutputFile file(fresh);
  try {
    file.write(text);
    file.finish();
    rename_path(fresh, path);
  } catch (...) {
    ::unlink(fresh.c_str());
    throw;
  }
  sync_folder(folder_of(path));
}

void sync_folder(const std::string& path) {
  const int descriptor = open_descriptor(path, O_RDONLY | O_DIRECTORY);
  if (descriptor < 0) fail_system(errno, path, ": the folder cannot be opened");
  const int done = ::fsync(descriptor);
  const int reason = errno;
  ::close(descriptor);
  if (done != 0) fail_system(reason, path, ": the folder cannot be brought to the disk");
}

void rename_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_system(errno, from, ": cannot become ", to);
}

void exchange_paths(const std::string& one, const std::string& other) {
  if (::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) != 0)
    fail_system(errno, one, ": cannot be exchanged with ", other);
}

void make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) != 0) fail_system(errno, path, ": the folder cannot be created");
}

std::vector<std::string> names_in(const std::string& folder) {
  const int descriptor = open_descriptor(folder, O_RDONLY | O_DIRECTORY);
  if (descriptor < 0) fail_system(errno, folder, ": the folder cannot be opened");
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(descriptor), ::closedir);
  if (!entries) {
    const int reason = errno;
    ::close(descriptor);
    fail_system(reason, folder, ": the folder cannot be read");
  }
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  if (errno != 0) fail_system(errno, folder, ": the folder cannot be read");
  std::sort(names.begin(), names.end());
  return names;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace rapt::detail

#endif
