#include "head_report/health_trials.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "rapt/inspect.h"

namespace rapt::lab {
namespace {

constexpr Index smallest_window = 8;

bool from_encoder(const LayerHealth& layer) { return layer.name.starts_with("encoder"); }

Index length_of(const ModelHealth& health, Index layer) {
  const bool source = from_encoder(health.layers[static_cast<std::size_t>(layer)]);
  return source && health.sources > 0 ? health.sources : health.tokens;
}

std::vector<Index> first_tokens(const ModelHealth& health, Index layer) {
  std::vector<Index> first;
  for (Index i = 0; i < std::min(health.pinned, length_of(health, layer)); ++i) first.push_back(i);
  return first;
}

enum class Pinned { yes, no };

Pattern narrowed(const ModelHealth& health, Index layer, Index reach, Pinned pinned) {
  const Pattern whole = Pattern::parse(health.layers[static_cast<std::size_t>(layer)].pattern);
  if (pinned == Pinned::no) return whole & window(reach, reach);
  return whole & (window(reach, reach) | tokens(first_tokens(health, layer)));
}

std::size_t place_of(const ModelHealth& health, Index distance) {
  const auto& grid = health.distances;
  const auto at = std::upper_bound(grid.begin(), grid.end(), distance) - grid.begin();
  return static_cast<std::size_t>(std::max<std::ptrdiff_t>(0, at - 1));
}

/// What heads keep, by the head.
void fill_masses(const ModelHealth& health, PatternTrial& trial,
                 const std::function<double(const HeadHealth&)>& kept) {
  trial.worst = 1;
  for (const HeadHealth& head : health.heads) {
    const double mass = kept(head);
    trial.mass += mass / static_cast<double>(health.heads.size());
    trial.worst = std::min(trial.worst, mass);
    trial.served += mass >= health.enough ? 1 : 0;
  }
}

void fill_pairs(const ModelHealth& health, PatternTrial& trial) {
  double all = 0, kept = 0;
  std::map<std::string, double> counted;
  const auto count = [&](const std::string& text, Index length) {
    auto [found, fresh] = counted.try_emplace(text + std::to_string(length));
    if (fresh) found->second = pairs_of(Pattern::parse(text), length);
    return found->second;
  };
  for (std::size_t i = 0; i < health.layers.size(); ++i) {
    const Index length = length_of(health, static_cast<Index>(i));
    all += count(health.layers[i].pattern, length);
    kept += count(trial.patterns[i], length);
  }
  trial.pairs = kept / all;
}

PatternTrial window_trial(const ModelHealth& health, Index reach, Pinned pinned) {
  PatternTrial trial;
  trial.name = "window of " + std::to_string(reach);
  if (pinned == Pinned::yes)
    trial.name += " and the first " + std::to_string(health.pinned) + " tokens";
  trial.window = reach;
  for (Index i = 0; i < std::ssize(health.layers); ++i)
    trial.patterns.push_back(narrowed(health, i, reach, pinned).text());
  const std::size_t place = place_of(health, reach);
  fill_masses(health, trial, [&](const HeadHealth& head) {
    return pinned == Pinned::yes ? head.within_pinned[place] : head.within[place];
  });
  fill_pairs(health, trial);
  const Index kept = reach + 1 + (pinned == Pinned::yes ? health.pinned : 0);
  trial.cache_bytes = health.cache_bytes * std::min(kept, health.tokens) / health.tokens;
  return trial;
}

/// Every layer as wide as its widest head needs.
std::optional<PatternTrial> fitted_trial(const ModelHealth& health) {
  PatternTrial trial;
  std::vector<std::optional<Index>> reaches;
  double cached = 0, caching = 0;  // layers with a cache, and what is kept of theirs
  for (Index i = 0; i < std::ssize(health.layers); ++i) {
    const std::optional<Index> reach = reaches.emplace_back(window_for(health, i));
    trial.patterns.push_back(reach ? narrowed(health, i, *reach, Pinned::yes).text()
                                   : health.layers[static_cast<std::size_t>(i)].pattern);
    if (health.sources > 0 && from_encoder(health.layers[static_cast<std::size_t>(i)])) continue;
    const Index kept = reach ? std::min(health.tokens, *reach + 1 + health.pinned) : health.tokens;
    caching += 1;
    cached += static_cast<double>(kept) / static_cast<double>(health.tokens);
  }
  const auto windows = std::ranges::count_if(reaches, [](const auto& r) { return r.has_value(); });
  if (windows == 0) return std::nullopt;
  trial.name = "windows by layer, in " + std::to_string(windows) + " of " +
               std::to_string(health.layers.size());
  fill_masses(health, trial, [&](const HeadHealth& head) {
    const std::optional<Index> reach = reaches[static_cast<std::size_t>(head.layer)];
    return reach ? head.within_pinned[place_of(health, *reach)] : 1.0;
  });
  fill_pairs(health, trial);
  trial.cache_bytes =
      static_cast<Index>(static_cast<double>(health.cache_bytes) * cached / std::max(1.0, caching));
  return trial;
}

std::optional<PatternTrial> hashed_trial(const ModelHealth& health, const ModelConfig& config) {
  const bool measured = std::ranges::all_of(
      health.heads, [](const HeadHealth& head) { return !std::isnan(head.hashed_mass); });
  if (!measured || config.kv_count() != config.heads) return std::nullopt;
  const Lsh how = tried_hashing();
  PatternTrial trial;
  trial.name = "hashing, " + std::to_string(how.rounds) + " rounds";
  double all = 0, kept = 0;
  for (Index i = 0; i < std::ssize(health.layers); ++i) {
    const Pattern whole = Pattern::parse(health.layers[static_cast<std::size_t>(i)].pattern);
    trial.patterns.push_back((whole & lsh(how)).text());
    all += pairs_of(whole, length_of(health, i));
    kept += static_cast<double>(lsh_pairs(how, length_of(health, i)));
  }
  trial.pairs = kept / all;
  trial.cache_bytes = health.cache_bytes;
  fill_masses(health, trial, [](const HeadHealth& head) { return head.hashed_mass; });
  return trial;
}

double mean_cosine(const Tensor& a, const Tensor& b) {
  const Index rows = a.shape()[0], width = a.shape()[1];
  double sum = 0;
  for (Index r = 0; r < rows; ++r) {
    double ab = 0, aa = 0, bb = 0;
    for (Index c = r * width; c < (r + 1) * width; ++c) {
      const auto x = static_cast<double>(a.data()[c]), y = static_cast<double>(b.data()[c]);
      ab += x * y, aa += x * x, bb += y * y;
    }
    sum += ab / std::max(std::sqrt(aa * bb), 1e-300);
  }
  return sum / static_cast<double>(rows);
}

}  // namespace

std::string layer_name(const AttentionCall& call) {
  return call.layer.substr(0, call.layer.rfind('.'));
}

double pairs_of(const Pattern& pattern, Index tokens) {
  double pairs = 0;
  Ranges ranges;
  for (Index i = 0; i < tokens; ++i) {
    pattern.keys_of(i, {tokens, tokens}, ranges);
    for (const Range& range : ranges) pairs += static_cast<double>(range.end - range.begin);
  }
  return pairs;
}

Index widest_window(Index tokens) {
  Index widest = 0;
  for (Index reach = smallest_window; 4 * reach <= 3 * tokens; reach *= 2) widest = reach;
  return widest;
}

std::optional<Index> window_for(const ModelHealth& health, Index layer) {
  const Index widest = widest_window(length_of(health, layer));
  for (Index reach = smallest_window; reach <= widest; reach *= 2) {
    const std::size_t place = place_of(health, reach);
    const bool all = std::ranges::all_of(health.heads, [&](const HeadHealth& head) {
      return head.layer != layer || head.within_pinned[place] >= health.enough;
    });
    if (all) return reach;
  }
  return std::nullopt;
}

Lsh tried_hashing() {
  Lsh how;
  how.chunk = 32;
  how.rounds = 4;
  how.before = how.after = 1;
  how.keys = Lsh::Keys::separate;
  how.duplicates = Lsh::Duplicates::once;
  return how;
}

bool can_be_hashed(const AttentionCall& call) {
  const Bias& bias = call.how.bias;
  return !bias.alibi && !bias.table && call.how.scale.rule != Scale::Rule::log_n &&
         call.q.tokens() >= 16 * tried_hashing().chunk;
}

std::vector<PatternTrial> planned_trials(const ModelHealth& health, const ModelConfig& config) {
  std::vector<PatternTrial> trials;
  const Index widest = widest_window(health.tokens);
  if (widest == 0) return trials;  // too short to leave anything out
  for (Index reach = widest; reach >= smallest_window && trials.size() < 3; reach /= 2)
    trials.push_back(window_trial(health, reach, Pinned::yes));
  trials.push_back(window_trial(health, widest, Pinned::no));
  if (std::optional<PatternTrial> fitted = fitted_trial(health)) trials.push_back(*fitted);
  if (std::optional<PatternTrial> hashed = hashed_trial(health, config)) trials.push_back(*hashed);
  return trials;
}

PassResult run_pass(const HealthRun& run, const PassOptions& options) {
  Tape tape(Tape::Mode::forward, run.context);
  const Variable rows = run.sources.ids.empty()
                            ? run.model.forward(tape, run.tokens, options)
                            : run.model.forward(tape, run.tokens, run.sources, options);
  PassResult result{{}, std::numeric_limits<double>::quiet_NaN()};
  const ModelConfig& config = run.model.config();
  if (config.head && config.kind != ModelConfig::Kind::encoder) {
    std::vector<std::int32_t> targets(run.tokens.ids.begin() + 1, run.tokens.ids.end());
    targets.push_back(-1);
    const TokenLoss loss = run.model.loss(tape, rows, targets);
    result.loss = loss.total / static_cast<double>(loss.counted);
  }
  result.rows = Tape::take(rows);
  return result;
}

void run_trial(const HealthRun& run, const ModelHealth& health, const PassResult& before,
               PatternTrial& trial) {
  std::map<std::string, Pattern> patterns;
  for (std::size_t i = 0; i < health.layers.size(); ++i)
    patterns.emplace(health.layers[i].name, Pattern::parse(trial.patterns[i]));
  std::map<std::string, std::shared_ptr<const Plan>> plans;
  PassOptions options;
  options.attention = [&](AttentionCall& call) {
    const auto found = patterns.find(layer_name(call));
    if (found == patterns.end() || call.layer.ends_with(".cross_attention")) return;
    call.how.pattern = found->second;
    call.how.plan = nullptr;
    if (lsh_part(found->second)) return;
    auto& plan = plans[found->second.text() + std::to_string(call.q.tokens())];
    if (!plan)
      plan =
          std::make_shared<const Plan>(call.how.pattern, Lengths{call.q.tokens(), call.k.tokens()});
    call.how.plan = plan;
  };
  const PassResult after = run_pass(run, options);
  trial.cosine = mean_cosine(before.rows, after.rows);
  trial.loss = after.loss;
}

}  // namespace rapt::lab
