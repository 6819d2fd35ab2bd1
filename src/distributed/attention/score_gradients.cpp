#include "distributed/attention/score_gradients.h"

#include <algorithm>

#include "base/check.h"

namespace rapt::detail {
namespace {

/// Numbers of a key head and a key group, side by side.
Index numbers_in(const ScoreGradients& part) {
  return part.slopes.size() + part.kerple.size() + part.table.size();
}

void copy_out(const ScoreGradients& part, double* to) {
  to = std::copy(part.slopes.begin(), part.slopes.end(), to);
  to = std::copy(part.kerple.begin(), part.kerple.end(), to);
  std::copy(part.table.begin(), part.table.end(), to);
}

void copy_in(const double* from, ScoreGradients& part) {
  for (Buffer<double>* numbers : {&part.slopes, &part.kerple, &part.table}) {
    std::copy_n(from, numbers->size(), numbers->begin());
    from += numbers->size();
  }
}

/// All key groups of the whole call, in its order: every rank gives those of its keys.
ScoreSums sums_of_one_machine(const RankCall& rank, BackwardPart& part) {
  const Call& call = part.call();
  const Index numbers = numbers_in(ScoreGradients(call));
  if (numbers == 0) return {};
  const Index group_tiles = part.pass().group_tiles();
  const Index groups = divide_up(divide_up(call.whole.keys, tile), group_tiles);
  const Index heads = call.batch * call.kv_heads;
  IndexedVector<double> all(heads * groups * numbers);
  IndexedVector<double> owners(groups);
  const std::span<const ScoreGradients> own = part.pass().score_gradients();
  IndexedVector<Index> own_groups;
  for (Index j = 0; j < call.key_tiles(); ++j) {
    const Index group = call.whole_key_tile(j) / group_tiles;
    if (own_groups.empty() || own_groups.back() != group) own_groups.push_back(group);
  }
  for (Index i = 0; i < std::ssize(own_groups); ++i) {
    owners[own_groups[i]] = 1;
    for (Index head = 0; head < heads; ++head)
      copy_out(element(own, head * std::ssize(own_groups) + i),
               all.data() + (head * groups + own_groups[i]) * numbers);
  }
  distributed::all_reduce_sum(rank.communicator, owners);
  check(std::all_of(owners.begin(), owners.end(), [](double n) { return n <= 1; }), rank.where,
        ": neighbouring key tiles are on several ranks, expected groups of ", group_tiles,
        " tiles on one rank for strict gradients of a bias (PlacementOptions::granule = 8)");
  distributed::all_reduce_sum(rank.communicator, all);
  std::vector<ScoreGradients> parts;
  for (Index i = 0; i < heads * groups; ++i) {
    parts.emplace_back(call);
    copy_in(all.data() + i * numbers, parts.back());
  }
  return join_score_gradients(call, parts);
}

ScoreSums sums_in_rank_order(const RankCall& rank, BackwardPart& part) {
  ScoreSums sums = join_score_gradients(part.call(), part.pass().score_gradients());
  for (IndexedVector<double>* numbers : {&sums.slopes, &sums.kerple, &sums.table})
    if (!numbers->empty()) distributed::all_reduce_sum(rank.communicator, *numbers);
  return sums;
}

/// Row after row, as one machine adds them.
IndexedVector<double> strict_sinks(const RankCall& rank, const BackwardInput& own) {
  const Index heads = rank.q.heads(), queries = rank.lengths().queries;
  IndexedVector<double> parts(rank.q.batch() * heads * queries);
  const std::vector<Index> positions = rank.exchange.queries.positions(rank.rank());
  const Index own_queries = std::ssize(positions);
  for (Index head = 0; head < rank.q.batch() * heads; ++head)
    for (Index i = 0; i < own_queries; ++i)
      parts[head * queries + element(positions, i)] = own.sink_parts[head * own_queries + i];
  distributed::all_reduce_sum(rank.communicator, parts);
  IndexedVector<double> dsinks(heads);
  for (Index row = 0; row < std::ssize(parts); ++row) dsinks[row / queries % heads] += parts[row];
  return dsinks;
}

IndexedVector<double> sink_gradients(const RankCall& rank, const BackwardInput& own) {
  if (rank.exchange.options.strict) return strict_sinks(rank, own);
  IndexedVector<double> dsinks = own.dsinks;
  distributed::all_reduce_sum(rank.communicator, dsinks);
  return dsinks;
}

void relative_gradient(const RankCall& rank, RelativeSums& sums, double factor, const View& table,
                       Tensor& gradient) {
  gradient = Tensor(table.shape());
  distributed::all_reduce_sum(rank.communicator, sums.sums());
  sums.write(factor, gradient);
}

}  // namespace

Gradients score_gradients(const RankCall& rank, BackwardPart& part, const BackwardInput& own) {
  Gradients gradients;
  const Bias& bias = rank.how.bias;
  const Index heads = rank.q.heads();
  if (bias.alibi) gradients.dslopes = Tensor({heads});
  if (bias.kerple) gradients.dkerple = Tensor({2, heads});
  if (bias.table) gradients.dtable = Tensor(bias.table->values.shape());
  write(rank.exchange.options.strict ? sums_of_one_machine(rank, part)
                                     : sums_in_rank_order(rank, part),
        gradients);
  if (bias.keys)
    relative_gradient(rank, part.pass().relative_keys(),
                      part.call().score_rule.key_gradient_factor(), bias.keys->table,
                      gradients.drelative_keys);
  if (!rank.how.relative_values.empty())
    relative_gradient(rank, part.pass().relative_values(), 1, rank.how.relative_values,
                      gradients.drelative_values);
  if (!rank.how.sinks.empty()) {
    gradients.dsinks = Tensor({heads});
    const IndexedVector<double> dsinks = sink_gradients(rank, own);
    std::transform(dsinks.begin(), dsinks.end(), gradients.dsinks.data(),
                   [](double x) { return static_cast<float>(x); });
  }
  return gradients;
}

bool wants_dense_gradient(const Attention& how) { return how.bias.dense && !how.bias.dense->fixed; }

}  // namespace rapt::detail
