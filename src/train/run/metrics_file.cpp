#include "train/run/metrics_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <utility>

#include "base/io/descriptor.h"
#include "base/io/files.h"
#include "base/io/system_call.h"
#include "formats/config/json.h"
#include "train/run/checkpoint_store.h"

namespace rapt::detail {
namespace {

constexpr Index most_bytes = Index{1} << 32;

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

double real_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : unknown;
}

/// The step of a line that may hold anything.
Index step_in(const Json& object, Index otherwise) {
  const auto found = object.find("step");
  if (found == object.end() || !found->is_number_integer()) return otherwise;
  const bool fits =
      !found->is_number_unsigned() || std::in_range<Index>(found->get<std::uint64_t>());
  return fits ? found->get<Index>() : otherwise;
}

/// A line, if it is an object; null otherwise.
Json object_in(std::string_view line) {
  try {
    Json value = parse_json(line, metrics_name);
    if (value.is_object()) return value;
  } catch (const std::runtime_error&) {
    // a torn last line, or one that rapt did not write
  }
  return nullptr;
}

/// Hands on the lines that are objects.
void for_each_object(std::string_view text,
                     const std::function<void(std::string_view line, const Json&)>& take) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (const Json object = object_in(line); !object.is_null()) take(line, object);
  }
}

/// For reading too: a pipe would refuse or wait for its reader before it can be seen to be one.
int open_to_append(const std::string& path) {
  return open_regular(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW);
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path)
    : path_(path), descriptor_(open_to_append(path)) {}

MetricsFile::~MetricsFile() { ::close(descriptor_); }

void MetricsFile::cut_after(Index step, Index evaluated) {
  const std::string all = read_file(path_, most_bytes);
  std::string kept;
  for_each_object(all, [&](std::string_view line, const Json& object) {
    const Index last = object.contains("evaluation_loss") ? evaluated : step;
    if (step_in(object, step + 1) <= last) kept.append(line).append("\n");
  });
  replace_file(path_, kept);
  const int fresh = open_to_append(path_);
  ::close(std::exchange(descriptor_, fresh));
}

bool MetricsFile::add_line(const std::string& line) {
  const std::string whole = line + '\n';
  struct stat before {};
  if (::fstat(descriptor_, &before) != 0) return false;
  const ssize_t written =
      uninterrupted([&] { return ::write(descriptor_, whole.data(), whole.size()); });
  if (written == static_cast<ssize_t>(whole.size())) return true;
  // Half a line would spoil the next one too.
  [[maybe_unused]] const int cut = written > 0 ? ::ftruncate(descriptor_, before.st_size) : 0;
  return false;
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
  if (!std::filesystem::exists(path)) return {};
  return metrics_tail_in(read_file(path, most_bytes));
}

MetricsTail metrics_tail_in(std::string_view text) {
  MetricsTail tail;
  for_each_object(text, [&](std::string_view, const Json& object) {
    const Index step = step_in(object, 0);
    if (object.contains("loss"))
      tail.progress = TrainProgress{.step = step, .loss = real_in(object, "loss")};
    if (object.contains("evaluation_loss"))
      tail.evaluation = Evaluation{.step = step,
                                   .loss = real_in(object, "evaluation_loss"),
                                   .accuracy = real_in(object, "accuracy"),
                                   .exact = real_in(object, "exact")};
  });
  return tail;
}

}  // namespace rapt::detail
