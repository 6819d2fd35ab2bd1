#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "rapt/generate.h"
#include "rapt/pretrained.h"
#include "rapt/train.h"

namespace rapt::cli {

/// A model wherever it comes from: a run of rapt train, a folder or file of others, a name that a
/// package stands for. Prints what the user should know.
Pretrained open_model(const std::string& name, const LoadOptions& options);

/// How a model is read, and the words of --weights.
struct LoadWords {
  std::string weights = "stored";
  bool allow_non_finite = false;
};
void add_load_options(CLI::App& command, LoadWords& words);
LoadOptions load_options(const LoadWords& words);
/// That of add_load_options, for a command without --weights.
void add_non_finite_option(CLI::App& command, bool& allow);

}  // namespace rapt::cli
