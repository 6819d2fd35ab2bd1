#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rapt/tensor.h"

namespace rapt::cli {

// Options that several commands have.

void add_threads_option(CLI::App& command, std::optional<Index>& threads);
/// One number of threads or several.
void add_threads_option(CLI::App& command, std::vector<Index>& threads);
void add_isa_option(CLI::App& command, std::optional<std::string>& isa);

/// The model of a command that opens it with open_model().
void add_model_option(CLI::App& command, std::string& model);

}  // namespace rapt::cli
