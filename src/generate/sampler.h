#pragma once

#include <span>
#include <vector>

#include "base/indexed_vector.h"
#include "kernels/network_kernels.h"
#include "rapt/models/generate.h"

namespace rapt::detail {

/// Draws tokens from rows of logits. Memory is allocated for the first row and reused.
///
/// Probabilities are computed in f32, exp by the kernels of the context's instruction set, and
/// added up in f64: each is within (2 + |logit - largest| / temperature) units of rounding of its
/// own.
class Sampler {
 public:
  explicit Sampler(const Context& context);

  /// As draw_token.
  std::int32_t draw(std::span<const float> logits, std::span<const std::int32_t> so_far,
                    const Sampling& sampling, std::uint64_t sequence);
  /// The log-probability of a token under the unchanged logits; NaN if one of them is.
  double log_probability(std::span<const float> logits, std::int32_t id);

 private:
  struct Kept {
    std::int32_t id;
    float number;  // its logit, then its weight relative to the most likely token
  };
  static bool likelier(const Kept& a, const Kept& b) {
    return a.number != b.number ? a.number > b.number : a.id < b.id;
  }

  void penalize(std::span<const std::int32_t> so_far, const Sampling& sampling);
  void keep_at_least(float least);
  void keep_likeliest(Index count);
  void keep_nucleus(double mass);
  void keep_down_to(const Kept& last);
  double weigh_all(float most, double temperature);
  void weigh_kept(float most, double temperature);
  double sum_of_kept() const;
  std::int32_t choose(double left) const;
  std::int32_t choose_kept(double left) const;
  std::int32_t draw_among_kept(float most, const Sampling& sampling, double share);

  const NetworkKernels& kernels_;
  IndexedVector<float> numbers_;    // of all tokens: logits, then weights
  std::vector<double> block_sums_;  // of weights, block after block of numbers_
  std::vector<double> bin_sums_;    // of weights of about the same size
  std::vector<Kept> kept_;          // some of them, by id
  std::vector<Kept> ranked_;        // the same in another order
  std::vector<float> most_;         // largest numbers of groups
  std::vector<std::int32_t> seen_;
};

}  // namespace rapt::detail
