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

/// Keys keep the order they were written in.
using Json = nlohmann::ordered_json;

inline void print(const Json& json) { fmt::print("{}\n", json.dump(2)); }

/// One case is an object, several are an array of objects.
inline void print_cases(const std::vector<Json>& cases) {
  print(cases.size() == 1 ? cases.front() : Json(cases));
}

/// Hands on what was printed so far. Throws std::system_error if it cannot be written, now or
/// before.
void flush_result();

/// A line on standard error. Nobody may be there to read it, which is no reason to end: what cannot
/// be written is dropped.
void message(const std::string& line);
template <class... Arguments>
void message(fmt::format_string<const Arguments&...> text, const Arguments&... arguments) {
  message(fmt::format(text, arguments...));
}

/// Whether standard error is a terminal that understands rewriting a line.
bool someone_watches();
/// A line about work in progress, for people watching only; the next one replaces it.
void progress(const std::string& line);
void end_progress();
/// "[=====>    ]  52 %  what"
std::string progress_bar(double done, const std::string& what);

/// All that is to be read. Throws std::invalid_argument where it does not end: devices may not.
std::string all_of(std::istream& in, const std::string& name);
/// Whether "-" is all that was given.
bool is_standard_input(const std::vector<std::string>& given);
/// Says that standard input is waited for, to somebody who would have to type it.
void say_what_is_read(const std::string& what);

/// A file that is whole or not there. Throws std::runtime_error if it cannot be written.
void write_whole(const std::filesystem::path& path, const std::string& text);
/// Throws std::runtime_error if it cannot be: before minutes of work.
void check_writable(const std::filesystem::path& path);

/// "3.2 GB"
std::string bytes_text(Index bytes);

/// Accepts plain decimal numbers of at least `least`: no signs, suffixes, hexadecimals or
/// exponents.
CLI::Validator whole_number(Index least);
/// A range lets through what is no number.
CLI::Validator finite_number();

}  // namespace rapt::cli
