#include "rapt/models/heads.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "base/indexed_vector.h"
#include "head_report/head_advice.h"
#include "head_report/head_probe.h"
#include "head_report/head_similarity.h"
#include "head_report/pattern_trial.h"
#include "rapt/lsh_recall.h"
#include "rapt/models/inspect.h"

namespace rapt {
using namespace detail;
namespace {

/// Measures every attention call of a pass.
class ReportMaker {
 public:
  ReportMaker(const ModelRun& run, const HeadReportOptions& options)
      : run_(run), options_(options) {
    const ModelConfig& config = run.model.config();
    report_.tokens = std::ssize(run.tokens.ids);
    report_.sources = std::ssize(run.sources.ids);
    report_.heads_per_layer = config.heads;
    report_.parameters = run.model.count();
    report_.distances = distance_grid(std::max(report_.tokens, report_.sources));
    report_.map_tile = map_tile(report_.tokens, options.map_size);
    report_.source_map_tile = map_tile(report_.sources, options.map_size);
    expected_ = config.layers + config.encoder_layers;
    report_.cache_bytes = inspect(config, {.tokens = report_.tokens}).cache_bytes * report_.tokens;
  }

  HeadReport make() {
    report_progress(0, "reading");
    PassOptions pass;
    pass.attention = [this](AttentionCall& call) { measure(call); };
    const PassResult result = run_pass(run_, pass);
    if (run_.model.config().global_projections)
      warn("Longformer's global projections are not measured");
    if (report_.layers.empty()) {
      std::string why;
      for (const std::string& line : report_.warnings) why += (why.empty() ? "" : "; ") + line;
      fail("heads: no layer can be measured: ", why);
    }
    report_.loss = result.loss;
    if (options_.trials) try_patterns(result);
    report_.advice = advice_on(report_);
    report_progress(1, "done");
    return std::move(report_);
  }

 private:
  void warn(const std::string& line) {
    if (std::ranges::find(report_.warnings, line) == report_.warnings.end())
      report_.warnings.push_back(line);
  }
  void report_progress(double done, const std::string& step) const {
    if (options_.progress) options_.progress(done, step);
  }

  void measure(const AttentionCall& call) {
    if (call.layer.ends_with(".cross_attention")) return warn("cross-attention is not measured");
    if (lsh_part(call.how.pattern))
      return warn("hashed layers are not measured: what queries see depends on the numbers");
    const HeadProbe& probe = probe_of(call.q.tokens());
    const Index layer = std::ssize(report_.layers);
    report_.layers.push_back({layer_name(call), call.how.pattern});
    const Index first = std::ssize(report_.heads);
    for (Index head = 0; head < call.q.heads(); ++head) {
      report_layer(layer, static_cast<double>(head) / static_cast<double>(2 * call.q.heads()));
      const OneHead one = head_of(call, head);
      HeadStats made = probe.measure(one, run_.context);
      made.layer = layer;
      made.head = head;
      classify(made, call.how.pattern, probe);
      if (can_be_hashed(call)) hash(one, made);
      report_.heads.push_back(std::move(made));
    }
    report_layer(layer, 0.5);
    compare(call, first);
    report_layer(layer, 1);
  }

  const HeadProbe& probe_of(Index tokens) {
    auto found = probes_.find(tokens);
    if (found == probes_.end())
      found = probes_.emplace(tokens, HeadProbe(tokens, report_, options_.map_size)).first;
    return found->second;
  }

  void report_layer(Index layer, double done) const {
    const double share = options_.trials ? measuring_share : 1;
    const double layers = static_cast<double>(std::max<Index>(expected_, layer + 1));
    report_progress(share * (static_cast<double>(layer) + done) / layers,
                    "layer " + std::to_string(layer + 1) + " of " + std::to_string(expected_));
  }

  void hash(const OneHead& one, HeadStats& made) const {
    Attention how;
    how.pattern = one.how.pattern & lsh(tried_hashing());
    how.scale = one.how.scale;
    how.softcap = one.how.softcap;
    const LshRecall recall = lsh_recall(one.q, one.k, how, {.queries = 128}, run_.context);
    made.hashed_mass = recall.mass;
    made.hashed_keys = recall.keys;
  }

  void compare(const AttentionCall& call, Index first) {
    const std::vector<double> cosines = similarities(call, run_.context);
    const Index heads = call.q.heads();
    for (Index head = 0; head < heads; ++head)
      element(report_.heads, first + head)
          .similarity.assign(cosines.begin() + head * heads, cosines.begin() + (head + 1) * heads);
    if (std::isnan(cosines.front()))
      warn(call.how.softcap > 0
               ? "heads are not compared with each other: logits with a softcap cannot be added"
               : "heads are not compared with each other: they are too wide to be joined");
  }

  void try_patterns(const PassResult& before) {
    report_.trials = planned_trials(report_, run_.model.config());
    for (std::size_t i = 0; i < report_.trials.size(); ++i) {
      const double done = static_cast<double>(i) / static_cast<double>(report_.trials.size());
      report_progress(measuring_share + (1 - measuring_share) * done,
                      "trying a " + report_.trials[i].name);
      run_trial(run_, report_, before, report_.trials[i]);
    }
  }

  static constexpr double measuring_share = 0.6;  // of the time, roughly
  const ModelRun& run_;
  const HeadReportOptions& options_;
  HeadReport report_;
  std::map<Index, HeadProbe> probes_;
  Index expected_;
};

}  // namespace

HeadReport heads(Transformer& model, const Tokens& tokens, const Tokens& sources,
                 const HeadReportOptions& options, const Context& context) {
  check(tokens.lengths.size() == 1, "heads: ", tokens.lengths.size(),
        " sequences given, expected 1");
  check(tokens.ids.size() >= 2, "heads: the text has ", tokens.ids.size(),
        " tokens, expected at least 2");
  const bool pairs = model.config().kind == ModelConfig::Kind::encoder_decoder;
  check(pairs == (sources.ids.size() >= 2) && (!pairs || sources.lengths.size() == 1),
        "heads: sources of ", sources.ids.size(), " tokens given, expected ",
        pairs ? "one of at least 2: the model is an encoder-decoder"
              : "none: the model is a decoder only");
  check(!options.map_size || (*options.map_size >= 1 && *options.map_size <= 256),
        "heads: map_size is ", options.map_size.value_or(0), ", expected 1 to 256, or none");
  const ModelRun run{model, tokens, sources, context};
  return ReportMaker(run, options).make();
}

}  // namespace rapt
