#include "head_report/pattern_trial.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/indexed_vector.h"
#include "rapt/models/inspect.h"

namespace rapt::detail {
namespace {

constexpr Index smallest_window = 8;

bool from_encoder(const LayerPattern& layer) { return layer.name.starts_with("encoder"); }

Index length_of(const HeadReport& report, Index layer) {
  const bool source = from_encoder(element(report.layers, layer));
  return source && report.sources > 0 ? report.sources : report.tokens;
}

std::vector<Index> first_tokens(const HeadReport& report, Index layer) {
  std::vector<Index> first;
  for (Index i = 0; i < std::min(report.pinned, length_of(report, layer)); ++i) first.push_back(i);
  return first;
}

enum class Pinned { yes, no };

Pattern narrowed(const HeadReport& report, Index layer, Index reach, Pinned pinned) {
  const Pattern& whole = element(report.layers, layer).pattern;
  if (pinned == Pinned::no) return whole & window(reach, reach);
  return whole & (window(reach, reach) | tokens(first_tokens(report, layer)));
}

std::size_t place_of(const HeadReport& report, Index distance) {
  const auto& grid = report.distances;
  const auto at = std::upper_bound(grid.begin(), grid.end(), distance) - grid.begin();
  return to_size(std::max<std::ptrdiff_t>(0, at - 1));
}

/// Fills in what the heads keep.
void fill_masses(const HeadReport& report, PatternTrial& trial,
                 const std::function<double(const HeadStats&)>& kept) {
  trial.worst = 1;
  for (const HeadStats& head : report.heads) {
    const double mass = kept(head);
    trial.mass += mass / static_cast<double>(report.heads.size());
    trial.worst = std::min(trial.worst, mass);
    trial.served += mass >= report.enough ? 1 : 0;
  }
}

void fill_pairs(const HeadReport& report, PatternTrial& trial) {
  double all = 0, kept = 0;
  std::map<std::string, double> counted;
  const auto count = [&](const Pattern& pattern, Index length) {
    auto [found, fresh] = counted.try_emplace(to_string(pattern) + std::to_string(length));
    if (fresh) found->second = pairs_of(pattern, length);
    return found->second;
  };
  for (std::size_t i = 0; i < report.layers.size(); ++i) {
    const Index length = length_of(report, static_cast<Index>(i));
    all += count(report.layers[i].pattern, length);
    kept += count(trial.patterns[i], length);
  }
  trial.pairs = kept / all;
}

PatternTrial window_trial(const HeadReport& report, Index reach, Pinned pinned) {
  PatternTrial trial;
  trial.name = "window of " + std::to_string(reach);
  if (pinned == Pinned::yes)
    trial.name += " and the first " + std::to_string(report.pinned) + " tokens";
  trial.window = reach;
  for (Index i = 0; i < std::ssize(report.layers); ++i)
    trial.patterns.push_back(narrowed(report, i, reach, pinned));
  const std::size_t place = place_of(report, reach);
  fill_masses(report, trial, [&](const HeadStats& head) {
    return pinned == Pinned::yes ? head.within_pinned[place] : head.within[place];
  });
  fill_pairs(report, trial);
  const Index kept = reach + 1 + (pinned == Pinned::yes ? report.pinned : 0);
  trial.cache_bytes = report.cache_bytes * std::min(kept, report.tokens) / report.tokens;
  return trial;
}

/// Every layer with the window its most demanding head needs.
std::optional<PatternTrial> fitted_trial(const HeadReport& report) {
  PatternTrial trial;
  IndexedVector<std::optional<Index>> reaches;
  double kept_share = 0, cached_layers = 0;
  for (Index i = 0; i < std::ssize(report.layers); ++i) {
    const std::optional<Index> reach = reaches.emplace_back(window_for(report, i));
    trial.patterns.push_back(reach ? narrowed(report, i, *reach, Pinned::yes)
                                   : element(report.layers, i).pattern);
    if (report.sources > 0 && from_encoder(element(report.layers, i))) continue;
    const Index kept = reach ? std::min(report.tokens, *reach + 1 + report.pinned) : report.tokens;
    cached_layers += 1;
    kept_share += static_cast<double>(kept) / static_cast<double>(report.tokens);
  }
  const auto windows = std::ranges::count_if(reaches, [](const auto& r) { return r.has_value(); });
  if (windows == 0) return std::nullopt;
  trial.name = "windows by layer, in " + std::to_string(windows) + " of " +
               std::to_string(report.layers.size());
  fill_masses(report, trial, [&](const HeadStats& head) {
    const std::optional<Index> reach = reaches[head.layer];
    return reach ? head.within_pinned[place_of(report, *reach)] : 1.0;
  });
  fill_pairs(report, trial);
  trial.cache_bytes = static_cast<Index>(static_cast<double>(report.cache_bytes) * kept_share /
                                         std::max(1.0, cached_layers));
  return trial;
}

std::optional<PatternTrial> hashed_trial(const HeadReport& report, const ModelConfig& config) {
  const bool measured = std::ranges::all_of(
      report.heads, [](const HeadStats& head) { return head.hashed_mass.has_value(); });
  if (!measured || config.kv_head_count() != config.heads) return std::nullopt;
  const Lsh how = tried_hashing();
  PatternTrial trial;
  trial.name = "hashing, " + std::to_string(how.rounds) + " rounds";
  double all = 0, kept = 0;
  for (Index i = 0; i < std::ssize(report.layers); ++i) {
    const Pattern& whole = element(report.layers, i).pattern;
    trial.patterns.push_back(whole & lsh(how));
    all += pairs_of(whole, length_of(report, i));
    kept += static_cast<double>(lsh_pairs(how, length_of(report, i)));
  }
  trial.pairs = kept / all;
  trial.cache_bytes = report.cache_bytes;
  fill_masses(report, trial, [](const HeadStats& head) { return *head.hashed_mass; });
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

std::optional<Index> widest_window(Index tokens) {
  std::optional<Index> widest;
  for (Index reach = smallest_window; 4 * reach <= 3 * tokens; reach *= 2) widest = reach;
  return widest;
}

std::optional<Index> window_for(const HeadReport& report, Index layer) {
  const Index widest = widest_window(length_of(report, layer)).value_or(0);
  for (Index reach = smallest_window; reach <= widest; reach *= 2) {
    const std::size_t place = place_of(report, reach);
    const bool all = std::ranges::all_of(report.heads, [&](const HeadStats& head) {
      return head.layer != layer || head.within_pinned[place] >= report.enough;
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

std::vector<PatternTrial> planned_trials(const HeadReport& report, const ModelConfig& config) {
  std::vector<PatternTrial> trials;
  const std::optional<Index> widest = widest_window(report.tokens);
  if (!widest) return trials;
  for (Index reach = *widest; reach >= smallest_window && trials.size() < 3; reach /= 2)
    trials.push_back(window_trial(report, reach, Pinned::yes));
  trials.push_back(window_trial(report, *widest, Pinned::no));
  if (std::optional<PatternTrial> fitted = fitted_trial(report)) trials.push_back(*fitted);
  if (std::optional<PatternTrial> hashed = hashed_trial(report, config)) trials.push_back(*hashed);
  return trials;
}

PassResult run_pass(const ModelRun& run, const PassOptions& options) {
  Tape tape(Tape::Mode::forward, run.context);
  const Variable rows = run.sources.ids.empty()
                            ? run.model.forward(tape, run.tokens, options)
                            : run.model.forward(tape, run.tokens, run.sources, options);
  PassResult result;
  const ModelConfig& config = run.model.config();
  if (config.head && config.kind != ModelConfig::Kind::encoder) {
    std::vector<std::int32_t> targets(run.tokens.ids.begin() + 1, run.tokens.ids.end());
    targets.push_back(-1);
    const TokenLoss loss = run.model.loss(tape, rows, targets);
    result.loss = loss.total / static_cast<double>(loss.counted);
  }
  result.rows = Tape::release(rows);
  return result;
}

void run_trial(const ModelRun& run, const HeadReport& report, const PassResult& before,
               PatternTrial& trial) {
  std::map<std::string, Pattern> patterns;
  for (std::size_t i = 0; i < report.layers.size(); ++i)
    patterns.emplace(report.layers[i].name, trial.patterns[i]);
  std::map<std::string, std::shared_ptr<const Plan>> plans;
  PassOptions options;
  options.attention = [&](AttentionCall& call) {
    const auto found = patterns.find(layer_name(call));
    if (found == patterns.end() || call.layer.ends_with(".cross_attention")) return;
    call.how.pattern = found->second;
    call.how.plan = nullptr;
    if (lsh_part(found->second)) return;
    auto& plan = plans[to_string(found->second) + std::to_string(call.q.tokens())];
    if (!plan)
      plan =
          std::make_shared<const Plan>(call.how.pattern, Lengths{call.q.tokens(), call.k.tokens()});
    call.how.plan = plan;
  };
  const PassResult after = run_pass(run, options);
  trial.cosine = mean_cosine(before.rows, after.rows);
  trial.loss = after.loss;
}

}  // namespace rapt::detail
