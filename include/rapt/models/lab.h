#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rapt/context.h"

namespace rapt {

/// A question that the lab answers by measuring.
struct LabExperiment {
  std::string name;
  std::string title;
};
/// All of them, in the order of the report.
RAPT_API std::vector<LabExperiment> lab_experiments();

struct LabOptions {
  std::vector<std::string> experiments = {};  // names; empty: all
  std::uint64_t seed = 1;
  /// Called with the fraction done, 0 to 1, and the current step. An exception ends the run.
  std::function<void(double done, const std::string& what)> progress = {};
  /// What the page tells readers to type to run one experiment again. Empty: nothing.
  std::function<std::string(const std::string& experiment)> command = {};
};

/// A page to look at, and its numbers as JSON.
struct LabReport {
  std::string html;  // needs no network and no other file
  std::string json;
};

/// Runs experiments with the engine itself. Throws std::invalid_argument if a name is unknown.
RAPT_API LabReport run_lab(const LabOptions& options = {}, const Context& context = {});

}  // namespace rapt
