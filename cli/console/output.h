#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <istream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rapt/tensor.h"

namespace rapt::cli {

/// Keys keep their order.
using Json = nlohmann::ordered_json;

inline void print(const Json& json) { fmt::print("{}\n", json.dump(2)); }

/// One case is an object, several are an array of objects.
inline void print_cases(const std::vector<Json>& cases) {
  print(cases.size() == 1 ? cases.front() : Json(cases));
}

/// Flushes standard output. Throws std::system_error if something cannot be written, now or before.
void flush_result();

/// A line on standard error. If it cannot be written, it is dropped.
void message(const std::string& line);
template <class... Arguments>
void message(fmt::format_string<const Arguments&...> text, const Arguments&... arguments) {
  message(fmt::format(text, arguments...));
}

/// Whether standard error is a terminal that can rewrite a line.
bool is_terminal();
/// A progress line, on terminals only; the next one replaces it.
void progress(const std::string& line);
void end_progress();
/// "[=====>    ]  52 %  what"
std::string progress_bar(double done, const std::string& what);

/// Reads to the end. Throws std::invalid_argument beyond 2^30 bytes: devices may not end.
std::string read_all(std::istream& in, const std::string& name);
/// Whether the only argument is "-".
bool is_standard_input(const std::vector<std::string>& given);
/// On a terminal: says that it waits for standard input.
void announce_standard_input(const std::string& what);

/// Writes a file atomically. Throws std::runtime_error if it cannot be written.
void write_whole(const std::filesystem::path& path, const std::string& text);
/// Throws std::runtime_error if a file cannot be written: a check before long work.
void check_writable(const std::filesystem::path& path);

/// "3.2 GB"
std::string bytes_text(Index bytes);

/// Accepts plain decimal numbers of at least `least`: no signs, suffixes, hexadecimals or
/// exponents.
CLI::Validator whole_number(Index least);
/// Refuses nan and inf, which CLI::Range accepts.
CLI::Validator finite_number();

}  // namespace rapt::cli
