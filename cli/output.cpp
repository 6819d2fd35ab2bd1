#include "cli/output.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string_view>

namespace rapt::cli {

bool someone_watches() {
  static const char* const terminal = std::getenv("TERM");
  static const bool smart = terminal != nullptr && std::string_view(terminal) != "dumb";
  return smart && isatty(STDERR_FILENO) != 0;
}

void progress(const std::string& line) {
  if (someone_watches()) fmt::print(stderr, "\r\033[K{}", line);
  std::fflush(stderr);
}

void end_progress() { progress(""); }

std::string progress_bar(double done, const std::string& what) {
  constexpr int width = 24;
  const int filled = static_cast<int>(done * width);
  return fmt::format("[{:=<{}}{:<{}}] {:3.0f} %  {}", "", filled, "", width - filled, done * 100,
                     what);
}

void write_whole(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path unfinished = path.string() + ".part";
  {
    std::ofstream file(unfinished, std::ios::binary);
    file << text;
    file.close();
    if (!file) {
      std::error_code ignored;
      std::filesystem::remove(unfinished, ignored);
      throw std::runtime_error(path.string() + ": cannot be written");
    }
  }
  std::error_code error;
  std::filesystem::rename(unfinished, path, error);
  if (!error) return;
  std::error_code ignored;
  std::filesystem::remove(unfinished, ignored);
  throw std::runtime_error(path.string() + ": cannot be written: " + error.message());
}

void check_writable(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path))
    throw std::runtime_error(path.string() + ": is a folder, expected the name of a file");
  const std::filesystem::path probe = path.string() + ".part";
  if (!std::ofstream(probe)) throw std::runtime_error(path.string() + ": cannot be written");
  std::error_code ignored;
  std::filesystem::remove(probe, ignored);
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

std::string all_of(std::istream& in, const std::string& name) {
  constexpr std::size_t most = std::size_t{1} << 30;
  std::string text;
  std::vector<char> part(std::size_t{1} << 16);
  while (text.size() <= most) {
    in.read(part.data(), static_cast<std::streamsize>(part.size()));
    if (in.gcount() == 0) break;
    text.append(part.data(), static_cast<std::size_t>(in.gcount()));
  }
  if (in.bad()) throw std::runtime_error(name + ": cannot be read to its end");
  if (text.size() > most)
    throw std::invalid_argument(name + ": more than 2^30 bytes, expected a text");
  return text;
}

void say_what_is_read(const std::string& what) {
  if (isatty(STDIN_FILENO) != 0)
    fmt::print(stderr, "reading {} from standard input; Ctrl-D ends it\n", what);
}

}  // namespace rapt::cli
