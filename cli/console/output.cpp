#include "cli/console/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

namespace rapt::cli {
namespace {

void write_to_stderr(const std::string& text) {
  [[maybe_unused]] const std::size_t written = std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

[[noreturn]] void fail_to_write(const std::filesystem::path& path, int reason) {
  throw std::runtime_error(path.string() +
                           ": cannot be written: " + std::generic_category().message(reason));
}

/// A temporary file next to `path`, removed unless it has been renamed to it.
class Unfinished {
 public:
  explicit Unfinished(const std::filesystem::path& path)
      : path_(path), name_(path.string() + ".part-" + std::to_string(::getpid())) {
    ::unlink(name_.c_str());  // of a dead process with our id
    descriptor_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail_to_write(path_, errno);
  }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  ~Unfinished() {
    if (descriptor_ >= 0) ::close(descriptor_);
    ::unlink(name_.c_str());
  }

  void write(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t put = ::write(descriptor_, text.data(), text.size());
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) fail_to_write(path_, errno);
      text = {text.begin() + put, text.end()};
    }
  }
  void finish() {
    if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) fail_to_write(path_, errno);
    if (std::rename(name_.c_str(), path_.c_str()) != 0) fail_to_write(path_, errno);
  }

 private:
  std::filesystem::path path_;
  std::string name_;
  int descriptor_ = -1;
};

}  // namespace

void flush_result() {
  const bool failed_before = std::ferror(stdout) != 0;
  errno = 0;
  if (std::fflush(stdout) == 0 && !failed_before) return;
  throw std::system_error(errno != 0 ? errno : EIO, std::generic_category(),
                          "cannot write the result");
}

void message(const std::string& line) { write_to_stderr(line + "\n"); }

bool is_terminal() {
  static const char* const terminal = std::getenv("TERM");
  static const bool smart = terminal != nullptr && std::string_view(terminal) != "dumb";
  return smart && isatty(STDERR_FILENO) != 0;
}

void progress(const std::string& line) {
  if (is_terminal()) write_to_stderr("\r\033[K" + line);
}

void end_progress() { progress(""); }

std::string progress_bar(double done, const std::string& what) {
  constexpr int width = 24;
  const int filled = static_cast<int>(std::clamp(done, 0.0, 1.0) * width);
  return fmt::format("[{:=<{}}{:<{}}] {:3.0f} %  {}", "", filled, "", width - filled, done * 100,
                     what);
}

void write_whole(const std::filesystem::path& path, const std::string& text) {
  Unfinished file(path);
  file.write(text);
  file.finish();
}

void check_writable(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path))
    throw std::runtime_error(path.string() + ": is a folder, expected the name of a file");
  const Unfinished probe(path);
}

std::string bytes_text(Index bytes) {
  constexpr std::array units = {"B", "kB", "MB", "GB", "TB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double number = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; number >= 1000 && unit + 1 < units.size(); ++unit) number /= 1000;
  return fmt::format("{:.1f} {}", number, units[unit]);
}

CLI::Validator whole_number(Index least) {
  const auto complaint = [least](const std::string& text) {
    const bool digits =
        !text.empty() && text.size() <= 18 &&
        std::all_of(text.begin(), text.end(), [](char c) { return '0' <= c && c <= '9'; });
    const bool octal = text.size() > 1 && text.front() == '0';
    if (digits && !octal && std::stoll(text) >= least) return std::string();
    return fmt::format("\"{}\" given, expected a whole number of at least {}", text, least);
  };
  return CLI::Validator(complaint, "", "whole number");
}

CLI::Validator finite_number() {
  const auto complaint = [](const std::string& text) {
    double number = 0;
    if (CLI::detail::lexical_cast(text, number) && std::isfinite(number)) return std::string();
    return fmt::format("\"{}\" given, expected a number", text);
  };
  return CLI::Validator(complaint, "", "number");
}

bool is_standard_input(const std::vector<std::string>& given) {
  return given.size() == 1 && given.front() == "-";
}

std::string read_all(std::istream& in, const std::string& name) {
  constexpr std::size_t most = std::size_t{1} << 30;
  std::string text;
  std::vector<char> part(std::size_t{1} << 16);
  while (text.size() <= most) {
    in.read(part.data(), static_cast<std::streamsize>(part.size()));
    if (in.gcount() == 0) break;
    text.append(part.begin(), part.begin() + in.gcount());
  }
  if (in.bad()) throw std::runtime_error(name + ": cannot be read to its end");
  if (text.size() > most)
    throw std::invalid_argument(name + ": more than 2^30 bytes, expected a text");
  return text;
}

void announce_standard_input(const std::string& what) {
  if (isatty(STDIN_FILENO) != 0) message("reading {} from standard input; Ctrl-D ends it", what);
}

}  // namespace rapt::cli
