#include "head_report/health_json.h"

#include <algorithm>
#include <cmath>

namespace rapt::lab {
namespace {

/// 6 significant digits are more than was measured.
Json number(double x) {
  if (!std::isfinite(x)) return nullptr;
  if (x == 0) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(std::fabs(x))) - 5);
  return std::round(x / unit) * unit;
}

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

Json json_of(const HeadHealth& head, const std::vector<std::size_t>& shown) {
  return {{"layer", head.layer},
          {"head", head.head},
          {"kind", head.kind},
          {"entropy", number(head.entropy)},
          {"evenness", number(head.evenness)},
          {"largest", number(head.largest)},
          {"saturated", number(head.saturated)},
          {"logit_deviation", number(head.logit_deviation)},
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
          {"likeness", numbers(head.likeness)},
          {"hashed_mass", number(head.hashed_mass)},
          {"hashed_keys", number(head.hashed_keys)}};
}

Json json_of(const PatternTrial& trial) {
  return {{"name", trial.name},           {"patterns", trial.patterns},
          {"window", trial.window},       {"mass", number(trial.mass)},
          {"worst", number(trial.worst)}, {"served", trial.served},
          {"pairs", number(trial.pairs)}, {"cosine", number(trial.cosine)},
          {"loss", number(trial.loss)},   {"cache_bytes", trial.cache_bytes}};
}

}  // namespace

std::vector<std::size_t> shown_distances(const ModelHealth& health) {
  std::vector<std::size_t> shown;
  Index next = 0;
  for (std::size_t i = 0; i < health.distances.size(); ++i) {
    if (health.distances[i] < next && i + 1 < health.distances.size()) continue;
    shown.push_back(i);
    // Quarters of every octave.
    Index octave = 4;
    while (2 * octave <= health.distances[i]) octave *= 2;
    next = health.distances[i] + octave / 4;
  }
  return shown;
}

Json json_of(const ModelHealth& health) {
  const std::vector<std::size_t> shown = shown_distances(health);
  Json distances = Json::array(), layers = Json::array(), heads = Json::array(),
       trials = Json::array();
  for (const std::size_t i : shown) distances.push_back(health.distances[i]);
  for (const LayerHealth& layer : health.layers)
    layers.push_back({{"name", layer.name}, {"pattern", layer.pattern}});
  for (const HeadHealth& head : health.heads) heads.push_back(json_of(head, shown));
  for (const PatternTrial& trial : health.trials) trials.push_back(json_of(trial));
  return {{"model", health.model},
          {"tokens", health.tokens},
          {"sources", health.sources},
          {"heads_each", health.heads_each},
          {"parameters", health.parameters},
          {"pinned", health.pinned},
          {"enough", health.enough},
          {"loss", number(health.loss)},
          {"cache_bytes", health.cache_bytes},
          {"texts", health.texts},
          {"source_texts", health.source_texts},
          {"layers", layers},
          {"distances", distances},
          {"heads", heads},
          {"trials", trials},
          {"advice", health.advice},
          {"notices", health.notices}};
}

}  // namespace rapt::lab

namespace rapt {

std::string health_json(const ModelHealth& health) {
  // Bytes of a token may be half a character.
  return lab::json_of(health).dump(1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace rapt
