#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rapt/models/train.h"

namespace rapt::detail {

/// metrics.jsonl of a run: one object a line, appended. When a run resumes, the lines after its
/// last checkpoint are removed, so that no step is there twice.
class MetricsFile {
 public:
  /// Throws std::runtime_error if the file cannot be written to.
  MetricsFile(const std::string& path);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  /// Leaves out the lines of steps above this one, and of evaluations at steps above the other.
  void cut_after(Index step, Index evaluated);
  /// False if the disk refuses the line; training continues without it.
  bool add(const TrainProgress& progress);
  bool add(const Evaluation& evaluation);

 private:
  bool add_line(const std::string& line);
  std::string path_;
  int descriptor_ = -1;
};

/// The last lines of either kind; none where there is no such line, or no file.
struct MetricsTail {
  std::optional<TrainProgress> progress = {};
  std::optional<Evaluation> evaluation = {};
};
MetricsTail metrics_tail(const std::string& path);
/// The tail of a file with this text, which may be anything.
MetricsTail metrics_tail_in(std::string_view text);

}  // namespace rapt::detail
