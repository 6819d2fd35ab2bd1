#include "train/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "base/files.h"
#include "formats/json.h"

namespace rapt {
namespace {

constexpr Index most_bytes = Index{1} << 32;

}  // namespace

MetricsFile::MetricsFile(const std::string& path)
    : path_(path),
      descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "open " + path);
}

MetricsFile::~MetricsFile() { ::close(descriptor_); }

void MetricsFile::cut_after(Index step) {
  std::istringstream all(read_file(path_, most_bytes));
  std::string kept, line;
  while (std::getline(all, line)) {
    const Json object = Json::parse(line, nullptr, false);  // a torn last line is no object
    if (object.is_object() && object.value("step", Index{0}) <= step) kept += line + '\n';
  }
  replace_file(path_, kept);
  ::close(descriptor_);
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "open " + path_);
}

bool MetricsFile::add_line(const std::string& line) {
  const std::string whole = line + '\n';
  return ::write(descriptor_, whole.data(), whole.size()) == static_cast<ssize_t>(whole.size());
}

bool MetricsFile::add(const TrainProgress& p) {
  const Json line{{"step", p.step},
                  {"loss", p.loss},
                  {"learning_rate", p.learning_rate},
                  {"gradient_norm", p.gradient_norm},
                  {"tokens_per_second", p.tokens_per_second},
                  {"of_peak", p.of_peak}};
  return add_line(line.dump());
}

bool MetricsFile::add(const Evaluation& e) {
  Json layers = Json::array();
  for (const LayerStats& layer : e.layers)
    layers.push_back({{"layer", layer.layer},
                      {"entropy", layer.entropy},
                      {"largest", layer.largest},
                      {"largest_logit", layer.largest_logit},
                      {"saturated", layer.saturated}});
  const Json line{{"step", e.step},
                  {"evaluation_loss", e.loss},
                  {"accuracy", e.accuracy},
                  {"exact", e.exact},
                  {"layers", layers}};
  return add_line(line.dump());
}

MetricsTail metrics_tail(const std::string& path) {
  MetricsTail tail;
  if (!std::filesystem::exists(path)) return tail;
  std::istringstream all(read_file(path, most_bytes));
  for (std::string line; std::getline(all, line);) {
    const Json object = Json::parse(line, nullptr, false);
    if (!object.is_object()) continue;
    if (object.contains("loss"))
      tail.progress =
          TrainProgress{.step = object.value("step", Index{0}), .loss = object.value("loss", 0.0)};
    if (object.contains("evaluation_loss"))
      tail.evaluation = Evaluation{.step = object.value("step", Index{0}),
                                   .loss = object.value("evaluation_loss", 0.0),
                                   .accuracy = object.value("accuracy", 0.0),
                                   .exact = object.value("exact", 0.0)};
  }
  return tail;
}

}  // namespace rapt
