#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "rapt/generate.h"

namespace rapt {
namespace {

struct Candidate {
  std::int32_t id;
  double logit;
};

/// The likelier first; of equals the smaller id, so that nothing depends on how they were sorted.
bool likelier(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

void penalize(std::vector<Candidate>& candidates, std::span<const std::int32_t> so_far,
              const Sampling& sampling) {
  if (sampling.repetition == 1) return;
  if (sampling.lately > 0 && static_cast<Index>(so_far.size()) > sampling.lately)
    so_far = so_far.last(static_cast<std::size_t>(sampling.lately));
  std::vector<bool> seen(candidates.size());
  for (const std::int32_t id : so_far) {
    const auto at = static_cast<std::size_t>(id);
    if (at >= seen.size() || seen[at]) continue;
    seen[at] = true;
    double& logit = candidates[at].logit;
    logit = logit > 0 ? logit / sampling.repetition : logit * sampling.repetition;
  }
}

/// Weights relative to the likeliest one, of those that min_p and top_p leave. Sorted.
std::vector<double> weights_of(std::vector<Candidate>& candidates, const Sampling& sampling) {
  std::vector<double> weights;
  for (const Candidate& c : candidates)
    weights.push_back(std::exp((c.logit - candidates.front().logit) / sampling.temperature));
  std::size_t kept = weights.size();
  while (kept > 1 && weights[kept - 1] < sampling.min_p) --kept;
  weights.resize(kept);
  if (sampling.top_p >= 1) return weights;
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    sum += weights[i];
    if (sum >= sampling.top_p * all) {
      weights.resize(i + 1);
      break;
    }
  }
  return weights;
}

}  // namespace

void Sampling::check() const {
  const auto need = [](bool ok, const char* name, double number, const char* expected) {
    rapt::check(ok, "sampling: ", name, " is ", number, ", expected ", expected);
  };
  need(temperature >= 0 && std::isfinite(temperature), "temperature", temperature, "0 or more");
  need(top_k >= 0, "top_k", static_cast<double>(top_k), "0 (all) or more");
  need(top_p > 0 && top_p <= 1, "top_p", top_p, "more than 0, at most 1");
  need(min_p >= 0 && min_p <= 1, "min_p", min_p, "0 to 1");
  need(repetition > 0 && std::isfinite(repetition), "repetition", repetition, "more than 0");
  need(lately >= 0, "lately", static_cast<double>(lately), "0 (all) or more");
}

std::int32_t draw_token(std::span<const float> logits, std::span<const std::int32_t> so_far,
                        const Sampling& sampling, std::uint64_t sequence) {
  std::vector<Candidate> candidates(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i)
    candidates[i] = {static_cast<std::int32_t>(i), static_cast<double>(logits[i])};
  penalize(candidates, so_far, sampling);
  std::erase_if(candidates, [](const Candidate& c) { return std::isnan(c.logit); });
  check(!candidates.empty(), "sampling: no logit is a number");
  const bool greedy = sampling.temperature == 0 || sampling.top_k == 1;
  if (greedy) return std::min_element(candidates.begin(), candidates.end(), likelier)->id;
  if (sampling.top_k > 0 && sampling.top_k < static_cast<Index>(candidates.size())) {
    std::nth_element(candidates.begin(), candidates.begin() + sampling.top_k, candidates.end(),
                     likelier);
    candidates.resize(static_cast<std::size_t>(sampling.top_k));
  }
  std::sort(candidates.begin(), candidates.end(), likelier);
  check(std::isfinite(candidates.front().logit), "sampling: the largest logit is ",
        candidates.front().logit, ", expected a finite number");
  const std::vector<double> weights = weights_of(candidates, sampling);
  const std::uint64_t bits =
      random_bits(sampling.seed, {static_cast<Index>(sequence), static_cast<Index>(so_far.size())});
  double left = static_cast<double>(bits >> 11) * 0x1p-53 *
                std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t i = 0; i + 1 < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return candidates[i].id;
  }
  return candidates[weights.size() - 1].id;
}

}  // namespace rapt
