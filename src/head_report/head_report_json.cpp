#include "head_report/head_report_json.h"

#include <algorithm>
#include <cmath>

namespace rapt::detail {
namespace {

/// 6 significant digits are more than was measured.
Json number(double x) {
  if (!std::isfinite(x)) return nullptr;
  if (x == 0) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(std::fabs(x))) - 5);
  return std::round(x / unit) * unit;
}

Json number(const std::optional<double>& x) { return x ? number(*x) : Json(); }

Json numbers(const std::vector<double>& all) {
  Json made = Json::array();
  for (const double x : all) made.push_back(number(x));
  return made;
}

std::vector<double> some_of(const std::vector<double>& all, const std::vector<std::size_t>& which) {
  std::vector<double> some;
  for (const std::size_t i : which) some.push_back(all[i]);
  return some;
}

Json json_of(const HeadStats& head, const std::vector<std::size_t>& shown) {
  return {{"layer", head.layer},
          {"head", head.head},
          {"kind", to_string(head.kind)},
          {"entropy", number(head.entropy)},
          {"normalized_entropy", number(head.normalized_entropy)},
          {"largest", number(head.largest)},
          {"saturated", number(head.saturated)},
          {"logit_std", number(head.logit_std)},
          {"jacobian_norm", number(head.jacobian_norm)},
          {"sink_mass", number(head.sink_mass)},
          {"favourite", head.favourite},
          {"favourite_mass", number(head.favourite_mass)},
          {"distance", number(head.distance)},
          {"reach50", head.reach50},
          {"reach90", head.reach90},
          {"reach99", head.reach99},
          {"within", numbers(some_of(head.within, shown))},
          {"within_pinned", numbers(some_of(head.within_pinned, shown))},
          {"similarity", numbers(head.similarity)},
          {"hashed_mass", number(head.hashed_mass)},
          {"hashed_keys", number(head.hashed_keys)}};
}

Json json_of(const PatternTrial& trial) {
  Json patterns = Json::array();
  for (const Pattern& pattern : trial.patterns) patterns.push_back(to_string(pattern));
  const Json window = trial.window ? Json(*trial.window) : Json();
  return {{"name", trial.name},
          {"patterns", patterns},
          {"window", window},
          {"mass", number(trial.mass)},
          {"worst", number(trial.worst)},
          {"served", trial.served},
          {"pairs", number(trial.pairs)},
          {"cosine", number(trial.cosine)},
          {"loss", number(trial.loss)},
          {"cache_bytes", trial.cache_bytes}};
}

}  // namespace

std::vector<std::size_t> shown_distances(const HeadReport& report) {
  std::vector<std::size_t> shown;
  Index next = 0;
  for (std::size_t i = 0; i < report.distances.size(); ++i) {
    if (report.distances[i] < next && i + 1 < report.distances.size()) continue;
    shown.push_back(i);
    // Quarters of every octave.
    Index octave = 4;
    while (2 * octave <= report.distances[i]) octave *= 2;
    next = report.distances[i] + octave / 4;
  }
  return shown;
}

Json json_of(const HeadReport& report) {
  const std::vector<std::size_t> shown = shown_distances(report);
  Json distances = Json::array(), layers = Json::array(), heads = Json::array(),
       trials = Json::array();
  for (const std::size_t i : shown) distances.push_back(report.distances[i]);
  for (const LayerPattern& layer : report.layers)
    layers.push_back({{"name", layer.name}, {"pattern", to_string(layer.pattern)}});
  for (const HeadStats& head : report.heads) heads.push_back(json_of(head, shown));
  for (const PatternTrial& trial : report.trials) trials.push_back(json_of(trial));
  return {{"model", report.model},
          {"tokens", report.tokens},
          {"sources", report.sources},
          {"heads_per_layer", report.heads_per_layer},
          {"parameters", report.parameters},
          {"pinned", report.pinned},
          {"enough", report.enough},
          {"loss", number(report.loss)},
          {"cache_bytes", report.cache_bytes},
          {"texts", report.texts},
          {"source_texts", report.source_texts},
          {"layers", layers},
          {"distances", distances},
          {"heads", heads},
          {"trials", trials},
          {"advice", report.advice},
          {"warnings", report.warnings}};
}

}  // namespace rapt::detail

namespace rapt {
using namespace detail;

std::string to_json(const HeadReport& report) {
  // Bytes of a token may be part of a character.
  return json_of(report).dump(1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace rapt
