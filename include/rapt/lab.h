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
  /// Told how much is done, from 0 to 1, and what is going on. What it throws ends the work.
  std::function<void(double done, const std::string& what)> progress = {};
};

/// A page to look at, and the same numbers to compute with.
struct LabReport {
  std::string html;  // needs no network and no other file
  std::string json;
};

/// Runs experiments with the engine itself. Throws std::invalid_argument if there is none of a
/// name.
RAPT_API LabReport run_lab(const LabOptions& options = {}, const Context& context = {});

}  // namespace rapt
