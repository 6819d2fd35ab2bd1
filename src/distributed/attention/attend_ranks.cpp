#include <cmath>
#include <cstring>
#include <optional>

#include "attention/forward/forward.h"
#include "attention/forward/unrounded_out.h"
#include "base/check.h"
#include "base/flush_denormals.h"
#include "base/numerics.h"
#include "distributed/attention/lsh_ranks.h"
#include "distributed/attention/rank_call.h"
#include "distributed/attention/tile_returns.h"

namespace rapt::distributed {
namespace {

/// Range after range of heads: computes one while the keys of the next arrive.
template <class Compute>
void for_each_range(const RankCall& call, const RankPart& part, CallPart& tiles, Call& compute_call,
                    const Compute& compute) {
  const HeadRanges ranges(call);
  TileMessages messages[2] = {call.key_messages(part.keys, 0), call.key_messages(part.keys, 1)};
  if (ranges.count() > 0) messages[0].start(ranges.at(0));
  for (Index i = 0; i < ranges.count(); ++i) {
    TileMessages& now = messages[i % 2];
    TileMessages& next = messages[(i + 1) % 2];
    now.finish();
    if (i + 1 < ranges.count()) next.start(ranges.at(i + 1));
    tiles.heads = ranges.at(i);
    tiles.progress = [&] { next.progress(); };
    compute_call.k.received = now.received(0);
    compute_call.v.received = now.received(1);
    compute();
  }
}

/// Queries of other ranks over the keys of this one: their shares of the softmax go back to where
/// the queries are, and are joined there. Few queries: all heads at once.
class Guests {
 public:
  Guests(const RankCall& call, const RankPart& part)
      : call_(call),
        part_(part),
        tiles_(part.tiles),
        all_{0, call.k.batch() * call.k.heads()},
        queries_(call.query_messages(part.queries, {call.q}, 0)),
        returns_(call.communicator, part.queries, {{group(), call.v.dim() + statistics}},
                 call.query_tiles(), call.lengths().queries, tag_query_returns) {
    queries_.start(all_);
  }

  void progress() { queries_.progress(); }

  /// Computes what others asked for and sends it.
  void compute(const Route& route) {
    queries_.finish();
    returns_.begin(all_);
    if (!part_.queries.in.empty()) {
      Attention how = how_of_part(call_.how, part_);
      how.sinks.clear();  // the owner of the query counts the sink
      tiles_.heads = all_;
      Call call(call_.part_request(part_, how), tiles_);
      call.q.received = queries_.received(0);
      Attended some = make_results({call.batch, call.heads, call.queries}, false);
      Tensor out = Tensor::uninitialized({call.batch, call.heads, call.queries, call.value_dim});
      route.run_part(call, output_of(some, out));
      write_returns(call, out, some.rows);
    }
    returns_.start();
  }

  /// Joins what others computed for queries of this rank.
  void join(Attended& attended, const AnyMutableView& out) {
    const Index heads = call_.q.heads();
    returns_.finish([&](Index, Index head, Index row, const float* share) {
      const Index at = head * out.tokens() + row;
      double sum = 0;
      std::memcpy(&sum, share + call_.v.dim() + 1, sizeof(sum));
      add_share(attended, at, head % heads, {static_cast<double>(share[call_.v.dim()]), sum, share},
                static_cast<float*>(out.row(head / heads, head % heads, row)));
    });
  }

 private:
  /// max as one f32, sum as the two halves of an f64.
  static constexpr Index statistics = 3;
  struct Share {
    double max, sum;
    const float* out;
  };

  Index group() const { return call_.k.heads() == 0 ? 1 : call_.q.heads() / call_.k.heads(); }

  void write_returns(const Call& call, const Tensor& out, const Rows& rows) const {
    const AnyMutableView* to = returns_.to_send(0);
    for (Index batch_head = 0; batch_head < call.batch * call.heads; ++batch_head) {
      for (Index query = 0; query < call.queries; ++query) {
        const TilePlace& place = tiles_.queries.places[query / tile];
        auto* row =
            static_cast<float*>(to[place.source].row(0, batch_head, place.first + query % tile));
        const Index from = batch_head * call.queries + query;
        std::memcpy(row, out.data() + from * call.value_dim,
                    to_size(call.value_dim) * sizeof(float));
        row[call.value_dim] = element(rows.max, from);
        std::memcpy(row + call.value_dim + 1, &element(rows.sum, from), sizeof(double));
      }
    }
  }

  void add_share(Attended& attended, Index row, Index head, const Share& share, float* out) const {
    float& max = element(attended.rows.max, row);
    double& sum = element(attended.rows.sum, row);
    const bool nothing = share.max == minus_infinity && share.sum == 0;
    if (nothing) return;
    double own_max = static_cast<double>(max), own_sum = sum;
    if (own_max == minus_infinity && own_sum == 0 && !call_.how.sinks.empty()) {
      // No key here: the sink was not counted.
      own_max = static_cast<double>(
          static_cast<float>(static_cast<double>(element(call_.how.sinks, head)) * log2_e));
      own_sum = std::exp2(static_cast<double>(element(call_.how.sinks, head)) * log2_e - own_max);
    }
    const double most = std::max(own_max, share.max);
    const double own = own_sum == 0 ? 0 : own_sum * std::exp2(own_max - most);
    const double others = share.sum * std::exp2(share.max - most);
    const double all = own + others;
    for (Index i = 0; i < call_.v.dim(); ++i) {
      const double mine = own == 0 ? 0 : static_cast<double>(out[i]) * (own / all);
      out[i] = static_cast<float>(mine + static_cast<double>(share.out[i]) * (others / all));
    }
    max = static_cast<float>(most);
    sum = all;
    attended.lse.data()[row] = static_cast<float>((most + std::log2(all)) * ln_2);
  }

  const RankCall& call_;
  const RankPart& part_;
  CallPart tiles_;
  HeadRange all_;
  TileMessages queries_;
  TileReturns returns_;
};

void run(const RankCall& call, const Route& route, Attended& attended, const AnyMutableView& out) {
  const RankParts& parts = call.exchange.parts(call.rank());
  std::optional<Guests> guests;
  if (!call.exchange.options.strict) guests.emplace(call, parts.guests);
  CallPart tiles = parts.own.tiles;
  const Attention how = how_of_part(call.how, parts.own);
  Call own(call.part_request(parts.own, how), tiles);
  for_each_range(call, parts.own, tiles, own,
                 [&] { route.run_part(own, output_of(attended, out)); });
  if (!guests) return;
  guests->compute(route);
  guests->join(attended, out);
}

}  // namespace

Attended attend(Communicator& communicator, const Exchange& exchange, AnyView q, AnyView k,
                AnyView v, const Attention& how, const Context& context) {
  const FlushDenormals guard;
  const RankCall call("distributed attend", communicator, exchange, q, k, v, how, context);
  if (call.exchange.hashed) return attend_lsh_over_ranks(call);
  check(!how.stats || exchange.options().strict,
        "distributed attend: statistics are asked for, expected a strict exchange for them");
  Request whole = call.whole_request();
  const Route& route = route_of(whole);
  Attended attended = make_results({q.batch(), q.heads(), q.tokens()}, how.stats);
  Tensor out = Tensor::uninitialized({q.batch(), q.heads(), q.tokens(), v.dim()}, q.type());
  UnroundedOut unrounded(
      out, exchange.options().strict ? gradients_of(how) : UnroundedOut::Gradients::wanted);
  run(call, route, attended, unrounded.view());
  unrounded.finish(attended.rows, context);
  attended.out = std::move(out);
  return attended;
}

}  // namespace rapt::distributed
