#include "train/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <limits>
#include <sstream>
#include <system_error>

#include "base/files.h"
#include "formats/json.h"

namespace rapt {
namespace {

constexpr Index most_bytes = Index{1} << 32;

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

/// A number of a line that may hold anything.
template <class T>
T number_in(const Json& object, const char* key, T otherwise) {
  if (!object.is_object()) return otherwise;
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->template get<T>() : otherwise;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path)
    : path_(path),
      descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "open " + path);
}

MetricsFile::~MetricsFile() { ::close(descriptor_); }

void MetricsFile::cut_after(Index step, Index evaluated) {
  std::istringstream all(read_file(path_, most_bytes));
  std::string kept, line;
  while (std::getline(all, line)) {
    const Json object = Json::parse(line, nullptr, false);  // a torn last line is no object
    const Index last = object.is_object() && object.contains("evaluation_loss") ? evaluated : step;
    if (number_in(object, "step", step + 1) <= last) kept += line + '\n';
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
    const auto real = [&](const char* key) { return number_in(object, key, unknown); };
    const Index step = number_in(object, "step", Index{0});
    if (object.contains("loss")) tail.progress = TrainProgress{.step = step, .loss = real("loss")};
    if (object.contains("evaluation_loss"))
      tail.evaluation = Evaluation{.step = step,
                                   .loss = real("evaluation_loss"),
                                   .accuracy = real("accuracy"),
                                   .exact = real("exact")};
  }
  return tail;
}

}  // namespace rapt
