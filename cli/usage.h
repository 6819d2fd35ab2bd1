#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace rapt::cli {

/// What is wrong with a command line, naming the word that was not understood and the nearest one
/// that would have been.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace rapt::cli
