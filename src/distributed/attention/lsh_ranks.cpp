#include "distributed/attention/lsh_ranks.h"

#include <cstring>
#include <optional>

#include "attention/forward/unrounded_out.h"
#include "attention/forward_output.h"
#include "attention/lsh/lsh_order.h"
#include "attention/lsh/lsh_rotations.h"
#include "base/check.h"
#include "distributed/attention/head_exchange.h"

namespace rapt::detail {
namespace {

/// The rotations of one head, [1, dim, rounds, half]: those that one machine would draw.
Tensor rotations_of(const RankCall& call, const Lsh& lsh, const LshRotations& all, Index head) {
  const Index dim = call.q.dim();
  Tensor some({1, dim, lsh.rounds, all.columns() / lsh.rounds});
  Buffer<float> rows(all.columns() * dim);
  all.copy(head, rows.data());
  for (Index d = 0; d < dim; ++d)
    for (Index c = 0; c < all.columns(); ++c)
      some.data()[d * all.columns() + c] = rows[c * dim + d];
  return some;
}

/// The attention of one head, as a call of its own.
class HeadAttention {
 public:
  explicit HeadAttention(const RankCall& call)
      : call_(call), lsh_(*lsh_part(call.how.pattern)), how_(call.how) {
    how_.strict = false;
    if (call.lengths().queries <= lsh_.chunk || call.q.heads() == 0) return;  // nothing is hashed
    const std::vector<Index> factors =
        lsh_.buckets.empty() ? lsh_buckets(call.lengths().queries, lsh_.chunk) : lsh_.buckets;
    all_.emplace(lsh_, factors, call.q.heads(), call.q.dim(), call.how.rotations);
  }

  const Attention& of(Index batch_head) {
    // As the seed of a head follows from its number.
    how_.dropout.seed =
        call_.how.dropout.seed + static_cast<std::uint64_t>(batch_head) * 0x9E3779B97F4A7C15u;
    if (!all_) return how_;
    rotations_ = rotations_of(call_, lsh_, *all_, batch_head % call_.q.heads());
    how_.rotations = rotations_.view();
    return how_;
  }
  /// The same with the order that forward found.
  const Attention& of(Index batch_head, const Rows& rows) {
    of(batch_head);
    if (rows.order != nullptr) how_.rotations.reset();
    return how_;
  }

 private:
  const RankCall& call_;
  Lsh lsh_;
  Attention how_;
  std::optional<LshRotations> all_;
  Tensor rotations_;
};

bool keys_are_queries(const RankCall& call) {
  return call.k.data() == call.q.data() && call.k.type() == call.q.type() &&
         call.k.strides() == call.q.strides();
}

/// Row statistics as three f32 for each query: max, and the halves of the f64 sum.
constexpr Index statistics = 3;

Tensor pack_rows(const Rows& rows, const Shape& shape) {
  Tensor packed({shape[0], shape[1], shape[2], statistics});
  for (Index i = 0; i < std::ssize(rows.max); ++i) {
    float* to = packed.data() + i * statistics;
    to[0] = element(rows.max, i);
    std::memcpy(to + 1, &element(rows.sum, i), sizeof(double));
  }
  return packed;
}

void unpack_rows(const Tensor& packed, Rows& rows) {
  const Index count = packed.elements() / statistics;
  rows.max.resize(to_size(count));
  rows.sum.resize(to_size(count));
  for (Index i = 0; i < count; ++i) {
    element(rows.max, i) = packed.data()[i * statistics];
    std::memcpy(&element(rows.sum, i), packed.data() + i * statistics + 1, sizeof(double));
  }
}

Shape rows_shape(const AnyView& q) { return {q.batch(), q.heads(), q.tokens()}; }

/// One head after the other: the operands of the next one travel while one is computed, and results
/// travel back while the next one is.
class HeadLoop {
 public:
  HeadLoop(const RankCall& call, const std::vector<AnyView>& operands)
      : operands_(operands),
        rank_(call.rank()),
        heads_(call.communicator.size(), call.q.batch() * call.q.heads()),
        there_(call.communicator, call.exchange.queries, heads_, tag_keys),
        back_(call.communicator, call.exchange.queries, heads_, tag_key_returns) {
    for (const AnyView& operand : operands)
      whole_.push_back(
          Tensor::uninitialized({1, 1, call.lengths().queries, operand.dim()}, operand.type()));
  }

  /// compute(number of the head among own ones, operands) gives the results as tensors; `own` are
  /// where results of own tokens go.
  template <class Compute>
  void run(const std::vector<AnyMutableView>& own, const Compute& compute) {
    if (heads_.rounds() > 0) there_.start_to_heads(operands_, 0);
    std::vector<Tensor> results;
    for (Index round = 0; round < heads_.rounds(); ++round) {
      there_.finish_to_heads(whole_);
      if (round + 1 < heads_.rounds()) there_.start_to_heads(operands_, round + 1);
      if (heads_.has(rank_, round)) results = compute(round, whole_);
      back_.finish_to_tokens(own);
      back_.start_to_tokens(views_of(results, own), round);
    }
    back_.finish_to_tokens(own);
  }

  Index batch_head(Index number) const { return heads_.heads_of(rank_).first + number; }
  Index own_heads() const { return heads_.heads_of(rank_).count; }

 private:
  /// Shapes where there are no results.
  static std::vector<AnyView> views_of(const std::vector<Tensor>& results,
                                       const std::vector<AnyMutableView>& own) {
    if (results.empty()) return {own.begin(), own.end()};
    return {results.begin(), results.end()};
  }

  const std::vector<AnyView>& operands_;
  Index rank_;
  HeadPlacement heads_;
  HeadExchange there_, back_;
  std::vector<Tensor> whole_;
};

template <class... Tensors>
std::vector<Tensor> list_of(Tensors&&... tensors) {
  std::vector<Tensor> list;
  (list.push_back(std::forward<Tensors>(tensors)), ...);
  return list;
}

Tensor as_column(Tensor lse) {
  const Shape shape = lse.shape();
  return std::move(lse).reshaped({shape[0], shape[1], shape[2], 1});
}

}  // namespace

Attended attend_lsh_over_ranks(const RankCall& call) {
  const Shape rows = rows_shape(call.q);
  const bool shared = keys_are_queries(call);
  std::vector<AnyView> operands{call.q, call.v};
  if (!shared) operands.push_back(call.k);
  HeadLoop loop(call, operands);
  HeadAttention how(call);
  std::vector<std::shared_ptr<const LshOrder>> orders;
  Tensor out({rows[0], rows[1], rows[2], call.v.dim()});
  Tensor packed({rows[0], rows[1], rows[2], statistics}), lse({rows[0], rows[1], rows[2], 1});
  loop.run({out, packed, lse}, [&](Index number, const std::vector<Tensor>& in) {
    Tensor whole = Tensor::uninitialized({1, 1, in[0].shape()[2], call.v.dim()});
    Attended mine = attend_into(whole, in[0], shared ? in[0] : in[2], in[1],
                                how.of(loop.batch_head(number)), call.context);
    orders.push_back(mine.rows.order);
    return list_of(std::move(whole), pack_rows(mine.rows, mine.lse.shape()),
                   as_column(std::move(mine.lse)));
  });
  Attended attended;
  unpack_rows(packed, attended.rows);
  attended.rows.order = join_heads(orders);
  attended.lse = std::move(lse).reshaped(rows);
  attended.out = call.q.type() == Type::f32 ? std::move(out) : out.converted(call.q.type());
  if (call.q.type() != Type::f32 && call.how.gradients)
    attended.rows.out = std::make_shared<const Tensor>(std::move(out));
  return attended;
}

Gradients attend_lsh_backward_over_ranks(const RankCall& call, const AnyView& dout,
                                         const AttendedView& attended) {
  const bool shared = keys_are_queries(call);
  const Tensor packed = pack_rows(attended.rows, rows_shape(call.q));
  std::vector<AnyView> operands{call.q, call.v, dout, unrounded(call.where, attended), packed};
  if (!shared) operands.push_back(call.k);
  HeadLoop loop(call, operands);
  HeadAttention how(call);
  const LshOrder* order = attended.rows.order.get();
  check(order == nullptr || order->batch_heads() == loop.own_heads(), call.where,
        ": the order is of ", order == nullptr ? 0 : order->batch_heads(), " heads, expected ",
        loop.own_heads(), " as attend leaves on this rank");
  Gradients gradients;
  gradients.dq = Tensor::uninitialized(call.q.shape(), call.q.type());
  gradients.dk = Tensor::uninitialized(call.k.shape(), call.k.type());
  gradients.dv = Tensor::uninitialized(call.v.shape(), call.v.type());
  loop.run(
      {gradients.dq, gradients.dk, gradients.dv}, [&](Index number, const std::vector<Tensor>& in) {
        Rows rows;
        unpack_rows(in[4], rows);
        if (order != nullptr) rows.order = head_of(*order, number);
        Gradients mine =
            attend_backward(AnyView(in[2]), in[0], shared ? in[0] : in[5], in[1], {in[3], rows},
                            how.of(loop.batch_head(number), rows), call.context);
        return list_of(std::move(mine.dq), std::move(mine.dk), std::move(mine.dv));
      });
  return gradients;
}

}  // namespace rapt::detail
