#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "rapt/models/pretrained.h"

namespace rapt::cli {

/// Loads a model from anywhere: a run of `rapt train`, a folder or GGUF file of a pretrained model,
/// or a name that find_model() knows. Prints warnings.
Pretrained open_model(const std::string& name, const LoadOptions& options);

/// --weight-type and --allow-non-finite.
void add_load_options(CLI::App& command, LoadOptions& options);
/// --allow-non-finite alone.
void add_non_finite_option(CLI::App& command, bool& allow);

/// Accepts the names of an enum, which become its value.
template <class Enum>
CLI::Option* add_enum_option(CLI::App& command, const std::string& name, Enum& value,
                             const std::vector<Enum>& choices, const std::string& help) {
  std::vector<std::string> names;
  for (const Enum choice : choices) names.push_back(to_string(choice));
  const auto set = [&value](const std::string& word) { value = from_string<Enum>(word); };
  return command.add_option_function<std::string>(name, set, help)
      ->check(CLI::IsMember(names))
      ->default_str(to_string(value));
}

}  // namespace rapt::cli
