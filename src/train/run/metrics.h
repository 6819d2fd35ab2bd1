#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rapt/train.h"

namespace rapt {

/// metrics.jsonl of a run: one object a line, appended. What a run that died has written after its
/// last checkpoint is cut off when it goes on, so that no step is told twice.
class MetricsFile {
 public:
  /// Throws std::runtime_error if the file cannot be written to.
  MetricsFile(const std::string& path);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  /// Leaves out the lines of steps above this one, and of evaluations at steps above the other.
  void cut_after(Index step, Index evaluated);
  /// False if the disk refuses the line; training goes on without it.
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
/// Of the text of a file, whatever it is.
MetricsTail metrics_tail_in(std::string_view text);

}  // namespace rapt
