#include "distributed/attention/backward_part.h"

#include <algorithm>
#include <cstring>

namespace rapt::detail {
namespace {

CallPart wanted_of(const CallPart& tiles, Wanted wanted) {
  CallPart some = tiles;
  some.wanted = wanted;
  return some;
}

/// The numbers of one query tile.
template <class T>
void copy_tile(const AnyView& from, Index head, Index row, Index count, T* to) {
  std::memcpy(to, from.row(head / from.heads(), head % from.heads(), row),
              to_size(count) * sizeof(T));
}

}  // namespace

BackwardPart::BackwardPart(const RankCall& call, const RankPart& part, Wanted wanted,
                           const BackwardRoute& route, const OwnQueries& own)
    : rank_(call),
      part_(part),
      own_(own),
      tiles_(wanted_of(part.tiles, wanted)),
      how_(how_of_part(call.how, part)),
      compute_(call.part_request(part, how_), tiles_),
      pass_(route.pass(compute_)),
      input_(own.dout, compute_.rows()) {
  copy_rows(own);
}

/// Rows of own queries; those of others follow with their heads.
void BackwardPart::copy_rows(const OwnQueries& own) {
  const Index own_queries = own.dout.tokens();
  for (Index t = 0; t < compute_.query_tiles(); ++t) {
    const TilePlace& place = tiles_.queries.places[t];
    if (place.source != TilePlace::here) continue;
    for (Index head = 0; head < compute_.batch * compute_.heads; ++head) {
      const Index from = head * own_queries + place.first, count = compute_.tile_rows(t);
      const Index to = head * compute_.queries + t * tile;
      std::copy_n(own.input.running_max.data() + from, count, input_.running_max.data() + to);
      std::copy_n(own.input.inverse_sum.data() + from, count, input_.inverse_sum.data() + to);
      std::copy_n(own.input.delta.data() + from, count, input_.delta.data() + to);
    }
  }
}

BackwardPart::Messages BackwardPart::messages(Index parity) const {
  const Shape rows = rank_.q.shape();
  const BackwardInput& own = own_.input;
  return {rank_.key_messages(part_.keys, parity),
          rank_.query_messages(part_.queries,
                               {rank_.q, own_.dout, as_rows(own.running_max, rows),
                                as_rows(own.inverse_sum, rows), as_rows(own.delta, rows)},
                               parity),
          {rank_.communicator,
           part_.keys,
           {{1, rank_.k.dim()}, {1, rank_.v.dim()}},
           rank_.key_tiles(),
           rank_.lengths().keys,
           tag_key_returns + parity},
          {rank_.communicator,
           part_.queries,
           {{group(), rank_.q.dim()}},
           rank_.query_tiles(),
           rank_.lengths().queries,
           tag_query_returns + parity}};
}

void BackwardPart::Messages::start(const HeadRange& heads) {
  keys.start(heads);
  queries.start(heads);
}

void BackwardPart::Messages::progress() {
  keys.progress();
  queries.progress();
  key_returns.progress();
  query_returns.progress();
}

/// Makes what arrived that of the call.
void BackwardPart::load_received(const Messages& messages, const HeadRange& heads) {
  tiles_.heads = heads;
  compute_.k.received = messages.keys.received(0);
  compute_.v.received = messages.keys.received(1);
  compute_.q.received = messages.queries.received(0);
  input_.dout.received = messages.queries.received(1);
  for (Index t = 0; t < compute_.query_tiles(); ++t) {
    const TilePlace& place = tiles_.queries.places[t];
    if (place.source == TilePlace::here) continue;
    for (Index i = 0; i < heads.count * group(); ++i) {
      const Index to = (heads.first * group() + i) * compute_.queries + t * tile;
      const Index count = compute_.tile_rows(t);
      const auto from = [&](Index operand) {
        return messages.queries.received(operand)[place.source];
      };
      copy_tile(from(2), i, place.first, count, input_.running_max.data() + to);
      copy_tile(from(3), i, place.first, count, input_.inverse_sum.data() + to);
      copy_tile(from(4), i, place.first, count, input_.delta.data() + to);
    }
  }
}

void BackwardPart::take_returns(Messages& messages, RankGradients& gradients) {
  const Index first = messages.key_returns.heads().first;
  messages.key_returns.finish([&](Index result, Index head, Index row, const float* numbers) {
    (result == 0 ? gradients.dk : gradients.dv).add(first + head, row, numbers);
  });
  messages.query_returns.finish([&](Index, Index head, Index row, const float* numbers) {
    gradients.dq.add(first * group() + head, row, numbers);
  });
}

void BackwardPart::run(RankGradients& gradients) {
  const HeadRanges ranges(rank_);
  Messages both[2] = {messages(0), messages(1)};
  const bool sends_home = tiles_.wanted == Wanted::all;
  if (ranges.count() > 0) both[0].start(ranges.at(0));
  for (Index i = 0; i < ranges.count(); ++i) {
    Messages &now = both[i % 2], &other = both[(i + 1) % 2];
    now.keys.finish();
    now.queries.finish();
    if (i + 1 < ranges.count()) other.start(ranges.at(i + 1));
    load_received(now, ranges.at(i));
    now.key_returns.begin(ranges.at(i));
    now.query_returns.begin(ranges.at(i));
    tiles_.dk = now.key_returns.to_send(0);
    tiles_.dv = now.key_returns.to_send(1);
    tiles_.dq = now.query_returns.to_send(0);
    tiles_.progress = [&] { other.progress(); };
    pass_->run(input_, {gradients.dq.own(), gradients.dk.own(), gradients.dv.own()});
    if (!gradients.ddense.empty()) run_dense_gradient(compute_, input_, gradients.ddense);
    if (!sends_home) continue;
    take_returns(other, gradients);
    now.key_returns.start();
    now.query_returns.start();
  }
  for (Messages& last : both) take_returns(last, gradients);
}

}  // namespace rapt::detail
