#include "head_report/head_probe.h"

#include <algorithm>
#include <cmath>

#include "base/indexed_vector.h"
#include "lab/experiments/numbers.h"

namespace rapt::detail {
namespace {

using lab::mean;
using lab::numbers_of;

constexpr Index near_distances = 64, max_distances = 252;

View head_in(const View& x, Index head) {
  return View::unchecked(x.data() + head * x.strides()[1], {1, 1, x.tokens(), x.dim()},
                         x.strides());
}

Index divided_up(Index a, Index b) { return (a + b - 1) / b; }

/// The first distance that holds this share.
Index reach_of(const HeadStats& head, const std::vector<Index>& distances, double share) {
  // Sums of rounded probabilities may end a little below 1.
  for (std::size_t b = 0; b < distances.size(); ++b)
    if (head.within[b] >= share) return distances[b];
  return distances.back();
}

void add_stats(const Stats& stats, HeadStats& made) {
  made.entropy = mean(numbers_of(stats.entropy));
  made.largest = mean(numbers_of(stats.largest));
  made.jacobian_norm = mean(numbers_of(stats.jacobian_norm));
  made.sink_mass = mean(numbers_of(stats.sink_mass));
  made.distance = mean(numbers_of(stats.reach));
  const auto rows = static_cast<double>(stats.largest.elements());
  for (const float variance : numbers_of(stats.logit_variance))
    made.logit_std += std::sqrt(static_cast<double>(variance)) / rows;
  for (const float largest : numbers_of(stats.largest))
    made.saturated += largest > 0.99f ? 1 / rows : 0;
}

/// Probability of every key, summed over queries, is the gradient of its value.
void add_favourite(const OneHead& head, const Context& context, HeadStats& made) {
  const Index tokens = head.k.tokens();
  Tensor ones({1, 1, tokens, 1});
  std::fill_n(ones.data(), tokens, 1.0f);
  const Attended attended = attend(head.q, head.k, ones.view(), head.how, context);
  const Tensor sums =
      attend_backward(ones.view(), head.q, head.k, ones.view(), attended, head.how, context).dv;
  const auto all = numbers_of(sums);
  const auto most = std::ranges::max_element(all);
  made.favourite = most - all.begin();
  made.favourite_mass = static_cast<double>(*most) / static_cast<double>(tokens);
}

}  // namespace

OneHead head_of(const AttentionCall& call, Index head) {
  OneHead made{head_in(call.q, head),
               head_in(call.k, head / (call.q.heads() / call.k.heads())),
               {.pattern = call.how.pattern,
                .scale = call.how.scale,
                .softcap = call.how.softcap,
                .plan = call.how.plan}};
  if (call.how.bias.alibi)
    made.how.bias = alibi(std::vector<float>{element(call.how.bias.alibi->slopes, head)});
  if (call.how.bias.table) {
    RelativeTable table = *call.how.bias.table;
    table.values = View::unchecked(table.values.data() + head, {table.values.shape()[0], 1},
                                   table.values.strides());
    made.how.bias.table = table;
  }
  return made;
}

std::vector<Index> distance_grid(Index longest) {
  std::vector<Index> grid;
  const Index far = longest - 1;
  if (longest <= max_distances) {
    for (Index d = 0; d <= far; ++d) grid.push_back(d);
    return grid;
  }
  for (Index d = 0; d <= near_distances; ++d) grid.push_back(d);
  Index octaves = 0;
  while (near_distances << octaves < far) ++octaves;
  const Index steps = (max_distances - near_distances - 1) / octaves;
  for (Index octave = 0; octave < octaves; ++octave) {
    const Index from = near_distances << octave;
    for (Index step = 1; step <= steps; ++step) {
      const Index d = std::min(far, from + from * step / steps);
      if (d > grid.back()) grid.push_back(d);
    }
  }
  return grid;
}

Index map_tile(Index tokens, std::optional<Index> map_size) {
  return !map_size || tokens == 0 ? 1 : divided_up(tokens, *map_size);
}

HeadProbe::HeadProbe(Index tokens, const HeadReport& plan, std::optional<Index> map_size)
    : tokens_(tokens),
      pinned_(std::min(tokens, plan.pinned)),
      distances_(plan.distances),
      map_tile_(map_tile(tokens, map_size)),
      side_(map_size ? divided_up(tokens, map_tile_) : 0) {
  const Index buckets = std::ssize(distances_), columns = side_ + buckets + pinned_;
  values_ = Tensor({1, 1, tokens, columns});
  for (Index j = 0; j < tokens && side_ > 0; ++j) values_.data()[j * columns + j / map_tile_] = 1;
  for (Index j = 0; j < pinned_; ++j) values_.data()[j * columns + side_ + buckets + j] = 1;
  table_ = Tensor({2 * tokens - 1, columns});
  for (Index r = 0; r < 2 * tokens - 1; ++r) {
    const Index distance = std::abs(r - (tokens - 1));
    const Index bucket =
        std::lower_bound(distances_.begin(), distances_.end(), distance) - distances_.begin();
    table_.data()[r * columns + side_ + bucket] = 1;
  }
}

HeadStats HeadProbe::measure(const OneHead& head, const Context& context) const {
  Attention how = head.how;
  how.stats = true;
  how.relative_values = table_.view();
  const Attended attended = attend(head.q, head.k, values_.view(), how, context);
  HeadStats made;
  add_stats(*attended.stats, made);
  add_distances(attended.out, made);
  if (side_ > 0) add_map(attended.out, made);
  add_favourite(head, context, made);
  return made;
}

void HeadProbe::add_distances(const Tensor& out, HeadStats& made) const {
  const std::size_t buckets = distances_.size();
  const Index columns = out.shape()[3];
  made.within.assign(buckets, 0);
  made.within_pinned.assign(buckets, 0);
  const double share = 1 / static_cast<double>(tokens_);
  for (Index i = 0; i < tokens_; ++i) {
    const float* row = out.data() + i * columns + side_;
    double sum = 0, all = 0;
    for (std::size_t b = 0; b < buckets; ++b) all += static_cast<double>(row[b]);
    for (std::size_t b = 0; b < buckets; ++b) {
      sum += static_cast<double>(row[b]);
      double kept = i < pinned_ ? all : sum;
      for (Index j = 0; j < pinned_ && i >= pinned_; ++j)
        if (i - j > distances_[b]) kept += static_cast<double>(row[std::ssize(distances_) + j]);
      made.within[b] += sum * share;
      made.within_pinned[b] += kept * share;
    }
  }
  made.reach50 = reach_of(made, distances_, 0.5);
  made.reach90 = reach_of(made, distances_, 0.9);
  made.reach99 = reach_of(made, distances_, 0.99);
}

void HeadProbe::add_map(const Tensor& out, HeadStats& made) const {
  const Index columns = out.shape()[3];
  made.map = Tensor({side_, side_});
  for (Index i = 0; i < tokens_; ++i) {
    const Index tile = i / map_tile_;
    const Index queries = std::min(map_tile_, tokens_ - tile * map_tile_);
    const float share = 1 / static_cast<float>(queries);
    for (Index c = 0; c < side_; ++c)
      made.map.data()[tile * side_ + c] += out.data()[i * columns + c] * share;
  }
}

void classify(HeadStats& head, const Pattern& pattern, const HeadProbe& probe) {
  const Lengths lengths{probe.tokens(), probe.tokens()};
  Ranges ranges;
  double largest_entropy = 0;
  for (Index i = 0; i < probe.tokens(); ++i) {
    pattern.keys_of(i, lengths, ranges);
    Index seen = 0;
    for (const Range& range : ranges) seen += range.end - range.begin;
    largest_entropy += std::log(static_cast<double>(std::max<Index>(1, seen)));
  }
  largest_entropy /= static_cast<double>(probe.tokens());
  head.normalized_entropy = largest_entropy > 0 ? head.entropy / largest_entropy : 1;
  constexpr double most = 0.5, sink = 0.25;
  const double self_mass = head.within.front();
  const double neighbour_mass = head.within.size() > 1 ? head.within[1] - self_mass : 0;
  using enum HeadStats::Kind;
  head.kind = head.sink_mass >= sink           ? first
              : head.favourite_mass >= sink    ? one
              : self_mass >= most              ? self
              : neighbour_mass >= most         ? neighbour
              : head.reach90 <= 16             ? near
              : head.normalized_entropy >= 0.8 ? even
                                               : mixed;
}

}  // namespace rapt::detail
