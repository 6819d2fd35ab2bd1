#include "distributed/attention/lsh_ranks.h"

#include <cstring>

#include "attention/forward/unrounded_out.h"
#include "attention/lsh/lsh_hash.h"
#include "attention/results.h"
#include "base/check.h"
#include "distributed/attention/head_exchange.h"

namespace rapt::detail {
namespace {

/// The rotations of some heads, [heads, dim, rounds, half]: those that one machine would draw.
Tensor rotations_of(const RankCall& call, const Lsh& lsh, const HeadRange& batch_heads) {
  const Index heads = call.q.heads(), dim = call.q.dim(), tokens = call.lengths().queries;
  const std::vector<Index> factors =
      lsh.buckets.empty() ? lsh_buckets(tokens, lsh.chunk) : lsh.buckets;
  const LshRotations all(lsh, factors, heads, dim, call.how.rotations);
  Tensor some({batch_heads.count, dim, lsh.rounds, lsh_half(factors)});
  Buffer<float> rows(all.columns() * dim);
  for (Index i = 0; i < batch_heads.count; ++i) {
    all.copy((batch_heads.first + i) % heads, rows.data());
    for (Index d = 0; d < dim; ++d)
      for (Index c = 0; c < all.columns(); ++c)
        some.data()[(i * dim + d) * all.columns() + c] = rows[c * dim + d];
  }
  return some;
}

/// The attention of some heads, as a call of its own.
class HeadsAttention {
 public:
  HeadsAttention(const RankCall& call, const HeadRange& batch_heads) : how_(call.how) {
    how_.strict = false;
    // As the seed of a head follows from its number.
    how_.dropout.seed += static_cast<std::uint64_t>(batch_heads.first) * 0x9E3779B97F4A7C15u;
    const Lsh lsh = *lsh_part(call.how.pattern);
    if (batch_heads.count == 0 || call.lengths().queries <= lsh.chunk) return;
    rotations_ = rotations_of(call, lsh, batch_heads);
    how_.rotations = rotations_.view();
  }

  Attention& how() { return how_; }

 private:
  Attention how_;
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

Tensor as_column(Tensor lse) {
  const Shape shape = lse.shape();
  return std::move(lse).reshaped({shape[0], shape[1], shape[2], 1});
}

}  // namespace

Attended attend_lsh_over_ranks(const RankCall& call) {
  const Index batch = call.q.batch(), heads = call.q.heads();
  const HeadExchange exchange(call.communicator, call.exchange.queries, batch * heads);
  const bool shared = keys_are_queries(call);
  std::vector<AnyView> operands{call.q, call.v};
  if (!shared) operands.push_back(call.k);
  const std::vector<Tensor> moved = exchange.to_heads(operands);
  const Tensor &q = moved[0], &v = moved[1], &k = shared ? q : moved[2];
  HeadsAttention some(call, exchange.own_heads());
  Tensor out({1, q.shape()[1], q.shape()[2], v.shape()[3]});
  Attended mine = attend_into(out, q, k, v, some.how(), call.context);

  const Tensor rows = pack_rows(mine.rows, mine.lse.shape());
  const Tensor lse = as_column(std::move(mine.lse));
  std::vector<Tensor> home = exchange.to_tokens({out, rows, lse}, batch, heads);
  Attended attended;
  attended.rows.order = mine.rows.order;
  unpack_rows(home[1], attended.rows);
  attended.lse = std::move(home[2]).reshaped(rows_shape(call.q));
  attended.out = call.q.type() == Type::f32 ? std::move(home[0]) : home[0].converted(call.q.type());
  if (call.q.type() != Type::f32 && call.how.gradients)
    attended.rows.out = std::make_shared<const Tensor>(std::move(home[0]));
  return attended;
}

Gradients attend_lsh_backward_over_ranks(const RankCall& call, const AnyView& dout,
                                         const AttendedView& attended) {
  const Index batch = call.q.batch(), heads = call.q.heads();
  const HeadExchange exchange(call.communicator, call.exchange.queries, batch * heads);
  const bool shared = keys_are_queries(call);
  const Tensor packed = pack_rows(attended.rows, rows_shape(call.q));
  std::vector<AnyView> operands{call.q, call.v, dout, unrounded(call.where, attended), packed};
  if (!shared) operands.push_back(call.k);
  const std::vector<Tensor> moved = exchange.to_heads(operands);
  const Tensor &q = moved[0], &v = moved[1], &k = shared ? q : moved[5];
  Rows rows;
  unpack_rows(moved[4], rows);
  rows.order = attended.rows.order;
  HeadsAttention some(call, exchange.own_heads());
  if (rows.order != nullptr) some.how().rotations.reset();
  const Gradients mine =
      attend_backward(AnyView(moved[2]), q, k, v, {moved[3], rows}, some.how(), call.context);
  std::vector<Tensor> home = exchange.to_tokens({mine.dq, mine.dk, mine.dv}, batch, heads);
  Gradients gradients;
  gradients.dq = std::move(home[0]);
  gradients.dk = std::move(home[1]);
  gradients.dv = std::move(home[2]);
  return gradients;
}

}  // namespace rapt::detail
