#include "support/ranks.h"

namespace rapt::test {
using namespace distributed;

namespace {

/// Numbers [batch, heads, tokens] of some tokens into those of all.
template <class T>
void place_numbers(std::span<const T> from, const std::vector<Index>& positions, Index tokens,
                   std::span<T> to) {
  if (positions.empty()) return;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::size_t head = i / positions.size();
    to[head * static_cast<std::size_t>(tokens) +
       static_cast<std::size_t>(positions[i % positions.size()])] = from[i];
  }
}

Shape shape_of(const AnyView& view) { return view.shape(); }

}  // namespace

RankAnswer::RankAnswer(const WholeCall& call, const Exchange& exchange)
    : call_(call), exchange_(exchange) {
  const Shape rows{call.q.batch(), call.q.heads(), call.q.tokens()};
  const auto count = static_cast<std::size_t>(rows.elements());
  answer_.forward.out = Tensor(shape_of(call.dout), call.q.type());
  answer_.forward.lse = Tensor(rows);
  answer_.forward.rows.max.resize(count);
  answer_.forward.rows.sum.resize(count);
  answer_.backward.dq = Tensor(shape_of(call.q), call.q.type());
  answer_.backward.dk = Tensor(shape_of(call.k), call.k.type());
  answer_.backward.dv = Tensor(shape_of(call.v), call.v.type());
}

void RankAnswer::run(Communicator& communicator, const Context& context) {
  const Index rank = communicator.rank();
  const Tensor q = shard(call_.q, exchange_.queries(), rank);
  const Tensor k = shard(call_.k, exchange_.keys(), rank);
  const Tensor v = shard(call_.v, exchange_.keys(), rank);
  const Tensor dout = shard(call_.dout, exchange_.queries(), rank);
  const Attended mine = attend(communicator, exchange_, q, k, v, call_.how, context);
  Gradients gradients =
      attend_backward(communicator, exchange_, dout, q, k, v, mine, call_.how, context);
  keep(rank, mine, std::move(gradients));
}

void RankAnswer::keep(Index rank, const Attended& mine, Gradients gradients) {
  const std::lock_guard lock(mutex_);
  const Placement &queries = exchange_.queries(), &keys = exchange_.keys();
  const std::vector<Index> positions = queries.positions(rank);
  Attended& all = answer_.forward;
  unshard_into(all.out, mine.out, queries, rank);
  place_numbers<float>(mine.lse.numbers(), positions, queries.tokens(), all.lse.numbers());
  place_numbers<float>(mine.rows.max, positions, queries.tokens(), all.rows.max);
  place_numbers<double>(mine.rows.sum, positions, queries.tokens(), all.rows.sum);
  unshard_into(answer_.backward.dq, gradients.dq, queries, rank);
  unshard_into(answer_.backward.dk, gradients.dk, keys, rank);
  unshard_into(answer_.backward.dv, gradients.dv, keys, rank);
  if (rank != 0) return;
  gradients.dq = std::move(answer_.backward.dq);
  gradients.dk = std::move(answer_.backward.dk);
  gradients.dv = std::move(answer_.backward.dv);
  answer_.backward = std::move(gradients);
}

Answer run_over_ranks(const WholeCall& call, const Exchange& exchange, const Context& context) {
  RankAnswer answer(call, exchange);
  run_ranks(exchange.queries().ranks(),
            [&](Communicator& communicator) { answer.run(communicator, context); },
            {.timeout = std::chrono::seconds(60)});
  return answer.take();
}

}  // namespace rapt::test
