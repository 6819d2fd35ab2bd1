#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace rapt::cli {

/// A message about a wrong command line: the unknown word, and the nearest known or the new name.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace rapt::cli
