#include "generate/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "base/check.h"
#include "base/numerics.h"
#include "base/random.h"
#include "nn/rows.h"

namespace rapt {
using namespace detail;
namespace {

/// Weights per block sum: a draw looks into one block only.
constexpr std::size_t block = 512;
/// Tokens per group; the largest logit of each is found first.
constexpr std::size_t group = 16;
/// Tokens that are few enough to be sorted.
constexpr std::ptrdiff_t few = 64;

/// Finite, so that the most likely token has logit 0 at any temperature. Never 0, which would turn
/// -inf into NaN.
float inverse_of(double temperature) {
  return static_cast<float>(std::clamp(1 / temperature, 1e-30, 1e30));
}

/// By exponent and four bits of the mantissa.
std::size_t bin_of(float weight) { return std::bit_cast<std::uint32_t>(weight) >> 19; }

double share_of(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

}  // namespace

void Sampling::check() const {
  const auto need = [](bool ok, const char* name, double number, const char* expected) {
    detail::check(ok, "sampling: ", name, " is ", number, ", expected ", expected);
  };
  need(temperature >= 0 && std::isfinite(temperature), "temperature", temperature, "0 or more");
  need(!top_k || *top_k >= 1, "top_k", static_cast<double>(top_k.value_or(0)),
       "1 or more, or none to keep all tokens");
  need(top_p > 0 && top_p <= 1, "top_p", top_p, "more than 0, at most 1");
  need(min_p >= 0 && min_p <= 1, "min_p", min_p, "0 to 1");
  need(repetition_penalty > 0 && std::isfinite(repetition_penalty), "repetition_penalty",
       repetition_penalty, "more than 0");
  need(!repetition_window || *repetition_window >= 1, "repetition_window",
       static_cast<double>(repetition_window.value_or(0)), "1 or more, or none for all tokens");
}

Sampler::Sampler(const Context& context) : kernels_(network_kernels_of(context)) {}

void Sampler::penalize(std::span<const std::int32_t> so_far, const Sampling& sampling) {
  const double penalty = sampling.repetition_penalty;
  if (penalty == 1) return;
  if (sampling.repetition_window && std::ssize(so_far) > *sampling.repetition_window)
    so_far = so_far.last(static_cast<std::size_t>(*sampling.repetition_window));
  seen_.assign(so_far.begin(), so_far.end());
  std::sort(seen_.begin(), seen_.end());
  seen_.erase(std::unique(seen_.begin(), seen_.end()), seen_.end());
  for (const std::int32_t id : seen_) {
    const auto at = static_cast<std::size_t>(id);
    if (at >= numbers_.size()) continue;
    const auto logit = static_cast<double>(numbers_[at]);
    numbers_[at] = static_cast<float>(logit > 0 ? logit / penalty : logit * penalty);
  }
}

/// Starts from all tokens.
void Sampler::keep_at_least(float least) {
  kept_.resize(numbers_.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < numbers_.size(); ++i) {
    kept_[count] = {static_cast<std::int32_t>(i), numbers_[i]};
    count += numbers_[i] >= least ? 1u : 0u;
  }
  kept_.resize(count);
}

/// Drops tokens less likely than `last`.
void Sampler::keep_down_to(const Kept& last) {
  std::erase_if(kept_, [&](const Kept& each) { return likelier(last, each); });
}

/// The `count` largest of all tokens. `count` groups have a maximum of at least the count-th
/// largest group maximum, so smaller numbers can be dropped before the selection.
void Sampler::keep_likeliest(Index count) {
  const std::size_t groups = numbers_.size() / group;
  float least = minus_infinity;
  if (static_cast<std::size_t>(count) <= groups) {
    most_.assign(numbers_.begin(), numbers_.begin() + static_cast<std::ptrdiff_t>(groups));
    for (std::size_t row = 1; row < group; ++row)
      for (std::size_t i = 0; i < groups; ++i)
        most_[i] = std::max(most_[i], numbers_[row * groups + i]);
    const auto last = most_.begin() + count - 1;
    std::nth_element(most_.begin(), last, most_.end(), std::greater<>());
    least = *last;
  }
  keep_at_least(least);
  ranked_ = kept_;
  const auto last = ranked_.begin() + count - 1;
  std::nth_element(ranked_.begin(), last, ranked_.end(), likelier);
  keep_down_to(*last);
}

/// The fewest of the kept tokens that weigh `mass` together, most likely first. Weights are at most
/// 1; their leading bits sort them into bins. The bin where the sum reaches `mass` is halved,
/// larger weights first, until few candidates are left.
void Sampler::keep_nucleus(double mass) {
  bin_sums_.assign(bin_of(1) + 1, 0);
  for (const Kept& each : kept_) bin_sums_[bin_of(each.number)] += static_cast<double>(each.number);
  std::size_t bin = bin_sums_.size() - 1;
  double before = 0;
  while (bin > 0 && before + bin_sums_[bin] < mass) before += bin_sums_[bin--];
  // Sums over bins round differently than the sum of all: step back from an empty bin.
  while (bin + 1 < bin_sums_.size() && bin_sums_[bin] == 0) before -= bin_sums_[++bin];
  ranked_.clear();
  for (const Kept& each : kept_)
    if (bin_of(each.number) == bin) ranked_.push_back(each);
  auto begin = ranked_.begin(), end = ranked_.end();
  const auto add = [](double sum, const Kept& each) {
    return sum + static_cast<double>(each.number);
  };
  while (end - begin > few) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, likelier);
    double with_half = before;
    for (auto each = begin; each != middle; ++each) with_half = add(with_half, *each);
    if (with_half >= mass) {
      end = middle;
    } else {
      begin = middle;
      before = with_half;
    }
  }
  std::sort(begin, end, likelier);
  auto last = begin;
  for (before = add(before, *last); before < mass && last + 1 != end; before = add(before, *last))
    ++last;
  keep_down_to(*last);
}

/// Turns all logits into weights and returns their sum.
double Sampler::weigh_all(float most, double temperature) {
  const float inverse = inverse_of(temperature);
  for (float& number : numbers_) number = (number - most) * inverse;
  block_sums_.clear();
  double sum = 0;
  for (std::size_t at = 0; at < numbers_.size(); at += block) {
    const auto count = static_cast<Index>(std::min(block, numbers_.size() - at));
    block_sums_.push_back(kernels_.exponentials(numbers_.data() + at, count, 0));
    sum += block_sums_.back();
  }
  return sum;
}

void Sampler::weigh_kept(float most, double temperature) {
  const float inverse = inverse_of(temperature);
  numbers_.resize(kept_.size());
  for (std::size_t i = 0; i < kept_.size(); ++i) numbers_[i] = (kept_[i].number - most) * inverse;
  kernels_.exponentials(numbers_.data(), std::ssize(numbers_), 0);
  for (std::size_t i = 0; i < kept_.size(); ++i) kept_[i].number = numbers_[i];
}

double Sampler::sum_of_kept() const {
  double sum = 0;
  for (const Kept& each : kept_) sum += static_cast<double>(each.number);
  return sum;
}

/// The token at which the running sum of weights exceeds `left`.
std::int32_t Sampler::choose(double left) const {
  std::size_t at = 0;
  while (at + 1 < block_sums_.size() && left >= block_sums_[at]) left -= block_sums_[at++];
  const std::size_t end = std::min(numbers_.size(), (at + 1) * block);
  std::size_t last = at * block;
  for (std::size_t i = last; i < end; ++i) {
    if (numbers_[i] == 0) continue;
    last = i;
    left -= static_cast<double>(numbers_[i]);
    if (left < 0) break;
  }
  return static_cast<std::int32_t>(last);
}

std::int32_t Sampler::choose_kept(double left) const {
  std::int32_t last = kept_.front().id;
  for (const Kept& each : kept_) {
    if (each.number <= 0) continue;
    last = each.id;
    left -= static_cast<double>(each.number);
    if (left < 0) break;
  }
  return last;
}

/// With top_k, min_p or top_p; `most` is the largest logit.
std::int32_t Sampler::draw_among_kept(float most, const Sampling& sampling, double share) {
  const auto min_p = static_cast<float>(sampling.min_p);
  double sum = 0;
  if (sampling.top_k && *sampling.top_k < std::ssize(numbers_)) {
    keep_likeliest(*sampling.top_k);
    weigh_kept(most, sampling.temperature);
    std::erase_if(kept_, [&](const Kept& each) { return each.number < min_p; });
    sum = sum_of_kept();
  } else {
    sum = weigh_all(most, sampling.temperature);
    // Tokens below this weigh less in all than what top_p drops.
    const double least = 0.999 * (1 - sampling.top_p) * sum / static_cast<double>(numbers_.size());
    keep_at_least(min_p > 0 ? min_p : static_cast<float>(least));
    if (min_p > 0) sum = sum_of_kept();
  }
  if (sampling.top_p < 1) {
    keep_nucleus(sampling.top_p * sum);
    sum = sum_of_kept();
  }
  return choose_kept(share * sum);
}

std::int32_t Sampler::draw(std::span<const float> logits, std::span<const std::int32_t> so_far,
                           const Sampling& sampling, std::uint64_t sequence) {
  numbers_.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i)
    numbers_[i] = logits[i] == logits[i] ? logits[i] : minus_infinity;
  penalize(so_far, sampling);
  const float most = kernels_.largest(numbers_.data(), std::ssize(numbers_));
  check(most > minus_infinity ||
            !std::all_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x); }),
        "sampling: no logit is a number");
  if (sampling.temperature == 0 || sampling.top_k == Index{1}) {
    std::size_t first = 0;
    while (numbers_[first] != most || std::isnan(logits[first])) ++first;
    return static_cast<std::int32_t>(first);
  }
  check(std::isfinite(most), "sampling: the largest logit is ", most, ", expected a finite number");
  const double share = share_of(random_bits(
      sampling.seed, {static_cast<Index>(sequence), static_cast<Index>(so_far.size())}));
  const bool all = sampling.top_k.value_or(std::ssize(logits)) >= std::ssize(logits) &&
                   sampling.top_p >= 1 && sampling.min_p == 0;
  if (!all) return draw_among_kept(most, sampling, share);
  return choose(share * weigh_all(most, sampling.temperature));
}

double Sampler::log_probability(std::span<const float> logits, std::int32_t id) {
  const float most = kernels_.largest(logits.data(), std::ssize(logits));
  numbers_.assign(logits.begin(), logits.end());
  const double sum = kernels_.exponentials(numbers_.data(), std::ssize(numbers_), most);
  return static_cast<double>(logits[static_cast<std::size_t>(id)]) - static_cast<double>(most) -
         std::log(sum);
}

std::int32_t draw_token(std::span<const float> logits, std::span<const std::int32_t> so_far,
                        const Sampling& sampling, std::uint64_t sequence) {
  sampling.check();
  return Sampler(Context()).draw(logits, so_far, sampling, sequence);
}

}  // namespace rapt
