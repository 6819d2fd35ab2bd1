#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/models.h"
#include "rapt/health.h"

namespace rapt::cli {

/// What `rapt inspect` is told about a text.
struct HealthCommand {
  std::string text, ids, target;  // files; "-": standard input
  std::string html;               // file of the page; "": none
  LoadWords load;
  Index limit = 0;
  Index threads = 0;

  bool asked() const { return !text.empty() || !ids.empty(); }
};

void add_health_options(CLI::App& command, HealthCommand& options);
/// Throws std::invalid_argument if options need a text that is not there.
void check_no_text(const HealthCommand& command);
enum class HealthOutput { text, json };
void run_health(const std::string& model, const HealthCommand& command, HealthOutput output);

}  // namespace rapt::cli
