#include "rapt/health.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "head_report/health_advice.h"
#include "head_report/health_head.h"
#include "head_report/health_likeness.h"
#include "head_report/health_trials.h"
#include "rapt/inspect.h"
#include "rapt/lsh_recall.h"

namespace rapt {
namespace {

/// Looks at every attention call of a pass.
class Examiner {
 public:
  Examiner(const lab::HealthRun& run, const HealthOptions& options) : run_(run), options_(options) {
    const ModelConfig& config = run.model.config();
    health_.tokens = std::ssize(run.tokens.ids);
    health_.sources = std::ssize(run.sources.ids);
    health_.heads_each = config.heads;
    health_.parameters = run.model.count();
    health_.distances = lab::distance_grid(std::max(health_.tokens, health_.sources));
    health_.map_tile = lab::map_tile(health_.tokens, options.map);
    health_.source_map_tile = lab::map_tile(health_.sources, options.map);
    expected_ = config.layers + config.encoder_layers;
    health_.cache_bytes = inspect(config, {.tokens = health_.tokens}).cache_bytes * health_.tokens;
  }

  ModelHealth examine() {
    tell(0, "reading");
    PassOptions pass;
    pass.attention = [this](AttentionCall& call) { look(call); };
    const lab::PassResult result = lab::run_pass(run_, pass);
    if (run_.model.config().global_projections)
      notice("Longformer's attention with projections of its own is not measured");
    if (health_.layers.empty()) {
      std::string why;
      for (const std::string& line : health_.notices) why += (why.empty() ? "" : "; ") + line;
      fail("examine: no layer can be measured: ", why);
    }
    health_.loss = result.loss;
    if (options_.trials) try_patterns(result);
    health_.advice = lab::advice_on(health_);
    tell(1, "done");
    return std::move(health_);
  }

 private:
  void notice(const std::string& line) {
    if (std::ranges::find(health_.notices, line) == health_.notices.end())
      health_.notices.push_back(line);
  }
  void tell(double done, const std::string& what) const {
    if (options_.progress) options_.progress(done, what);
  }

  void look(const AttentionCall& call) {
    if (call.layer.ends_with(".cross_attention"))
      return notice("attention from the decoder to the encoder is not measured");
    if (lsh_part(call.how.pattern))
      return notice("hashed layers are not measured: what they let queries see depends on numbers");
    const lab::HeadProbe& probe = probe_of(call.q.tokens());
    const Index layer = std::ssize(health_.layers);
    health_.layers.push_back({lab::layer_name(call), call.how.pattern.text()});
    const Index first = std::ssize(health_.heads);
    for (Index head = 0; head < call.q.heads(); ++head) {
      tell_layer(layer, static_cast<double>(head) / static_cast<double>(2 * call.q.heads()));
      const lab::OneHead one = lab::head_of(call, head);
      HeadHealth made = probe.measure(one, run_.context);
      made.layer = layer;
      made.head = head;
      lab::judge(made, call.how.pattern, probe);
      if (lab::can_be_hashed(call)) hash(one, made);
      health_.heads.push_back(std::move(made));
    }
    tell_layer(layer, 0.5);
    compare(call, first);
    tell_layer(layer, 1);
  }

  const lab::HeadProbe& probe_of(Index tokens) {
    auto found = probes_.find(tokens);
    if (found == probes_.end())
      found = probes_.emplace(tokens, lab::HeadProbe(tokens, health_, options_.map)).first;
    return found->second;
  }

  void tell_layer(Index layer, double done) const {
    const double share = options_.trials ? measuring_share : 1;
    const double layers = static_cast<double>(std::max<Index>(expected_, layer + 1));
    tell(share * (static_cast<double>(layer) + done) / layers,
         "layer " + std::to_string(layer + 1) + " of " + std::to_string(expected_));
  }

  void hash(const lab::OneHead& one, HeadHealth& made) const {
    Attention how;
    how.pattern = one.how.pattern & lsh(lab::tried_hashing());
    how.scale = one.how.scale;
    how.softcap = one.how.softcap;
    const LshRecall recall = lsh_recall(one.q, one.k, how, {.queries = 128}, run_.context);
    made.hashed_mass = recall.mass;
    made.hashed_keys = recall.keys;
  }

  void compare(const AttentionCall& call, Index first) {
    const std::vector<double> cosines = lab::likeness_of(call, run_.context);
    const Index heads = call.q.heads();
    for (Index head = 0; head < heads; ++head)
      health_.heads[static_cast<std::size_t>(first + head)].likeness.assign(
          cosines.begin() + head * heads, cosines.begin() + (head + 1) * heads);
    if (std::isnan(cosines.front()))
      notice(call.how.softcap > 0
                 ? "heads are not compared with one another: logits with a softcap do not add up"
                 : "heads are not compared with one another: they are too wide to be joined");
  }

  void try_patterns(const lab::PassResult& before) {
    health_.trials = lab::planned_trials(health_, run_.model.config());
    for (std::size_t i = 0; i < health_.trials.size(); ++i) {
      const double done = static_cast<double>(i) / static_cast<double>(health_.trials.size());
      tell(measuring_share + (1 - measuring_share) * done, "trying a " + health_.trials[i].name);
      lab::run_trial(run_, health_, before, health_.trials[i]);
    }
  }

  static constexpr double measuring_share = 0.6;  // of the time, roughly
  const lab::HealthRun& run_;
  const HealthOptions& options_;
  ModelHealth health_;
  std::map<Index, lab::HeadProbe> probes_;
  Index expected_;
};

}  // namespace

ModelHealth examine(Transformer& model, const Tokens& tokens, const Tokens& sources,
                    const HealthOptions& options, const Context& context) {
  check(tokens.lengths.size() == 1, "examine: ", tokens.lengths.size(),
        " sequences given, expected 1");
  check(tokens.ids.size() >= 2, "examine: the text has ", tokens.ids.size(),
        " tokens, expected at least 2");
  const bool pairs = model.config().kind == ModelConfig::Kind::encoder_decoder;
  check(pairs == (sources.ids.size() >= 2) && (!pairs || sources.lengths.size() == 1),
        "examine: sources of ", sources.ids.size(), " tokens given, expected ",
        pairs ? "one of at least 2: the model is an encoder-decoder"
              : "none: the model has no encoder beside its decoder");
  check(options.map >= 0 && options.map <= 256, "examine: maps of ", options.map,
        " given, expected 0 to 256");
  const lab::HealthRun run{model, tokens, sources, context};
  return Examiner(run, options).examine();
}

}  // namespace rapt
