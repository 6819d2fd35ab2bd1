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

/// Farther below the likeliest than this, in units of the temperature, a token's weight is no part
/// of a sum in double precision.
constexpr double negligible = -45;

struct Weighted {
  Candidate candidate;
  double weight;  // relative to the likeliest
};

/// What min_p and top_k leave.
std::vector<Weighted> weighted(std::vector<Candidate> candidates, const Sampling& sampling) {
  if (sampling.top_k > 0 && sampling.top_k < static_cast<Index>(candidates.size())) {
    std::nth_element(candidates.begin(), candidates.begin() + sampling.top_k, candidates.end(),
                     likelier);
    candidates.resize(static_cast<std::size_t>(sampling.top_k));
  }
  const double most = std::min_element(candidates.begin(), candidates.end(), likelier)->logit;
  check(std::isfinite(most), "sampling: the largest logit is ", most, ", expected a finite number");
  std::vector<Weighted> kept;
  for (const Candidate& c : candidates) {
    const double below = (c.logit - most) / sampling.temperature;
    if (below < negligible) continue;
    if (const double weight = std::exp(below); weight >= sampling.min_p)
      kept.push_back({c, weight});
  }
  return kept;
}

double sum_of(const std::vector<Weighted>& list) {
  return std::accumulate(list.begin(), list.end(), 0.0,
                         [](double sum, const Weighted& w) { return sum + w.weight; });
}

/// The likeliest ones that reach top_p of the whole together: a heap gives them one by one, so the
/// long tail of a vocabulary is never sorted.
std::vector<Weighted> nucleus(std::vector<Weighted> list, double top_p) {
  const double enough = top_p * sum_of(list);
  const auto less = [](const Weighted& a, const Weighted& b) {
    return likelier(b.candidate, a.candidate);
  };
  std::make_heap(list.begin(), list.end(), less);
  std::vector<Weighted> kept;
  double sum = 0;
  for (auto end = list.end(); end != list.begin() && (kept.empty() || sum < enough); --end) {
    std::pop_heap(list.begin(), end, less);
    kept.push_back(*(end - 1));
    sum += kept.back().weight;
  }
  return kept;
}

/// Greedy: no list is made of the candidates.
std::int32_t likeliest(std::span<const float> logits) {
  std::size_t best = logits.size();
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (!std::isnan(logits[i]) && (best == logits.size() || logits[i] > logits[best])) best = i;
  check(best < logits.size(), "sampling: no logit is a number");
  return static_cast<std::int32_t>(best);
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
  const bool greedy = sampling.temperature == 0 || sampling.top_k == 1;
  if (greedy && sampling.repetition == 1) return likeliest(logits);
  std::vector<Candidate> candidates(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i)
    candidates[i] = {static_cast<std::int32_t>(i), static_cast<double>(logits[i])};
  penalize(candidates, so_far, sampling);
  std::erase_if(candidates, [](const Candidate& c) { return std::isnan(c.logit); });
  check(!candidates.empty(), "sampling: no logit is a number");
  if (greedy) return std::min_element(candidates.begin(), candidates.end(), likelier)->id;
  std::vector<Weighted> list = weighted(std::move(candidates), sampling);
  if (sampling.top_p < 1) list = nucleus(std::move(list), sampling.top_p);
  // In an order of their own, whatever library picked them.
  const auto earlier = [](const Weighted& a, const Weighted& b) {
    return a.candidate.id < b.candidate.id;
  };
  if (!std::is_sorted(list.begin(), list.end(), earlier))
    std::sort(list.begin(), list.end(), earlier);
  const std::uint64_t bits =
      random_bits(sampling.seed, {static_cast<Index>(sequence), static_cast<Index>(so_far.size())});
  double left = static_cast<double>(bits >> 11) * 0x1p-53 * sum_of(list);
  for (std::size_t i = 0; i + 1 < list.size(); ++i) {
    left -= list[i].weight;
    if (left < 0) return list[i].candidate.id;
  }
  return list.back().candidate.id;
}

}  // namespace rapt
