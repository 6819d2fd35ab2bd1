#include "distributed/attention/rank_call.h"

#include <algorithm>

#include "attention/validate.h"
#include "base/check.h"
#include "base/keep_memory.h"
#include "base/views.h"

namespace rapt::detail {
namespace {

/// Messages and gradients of a call are as large as those of the next one, and fresh pages cost up
/// to a quarter of it.
void keep_memory_of_calls() { static const KeepMemory keep(std::size_t{1} << 30); }

void check_ranks(const RankCall& call) {
  const Index ranks = call.exchange.queries.ranks();
  check(call.communicator.size() == ranks, call.where, ": the exchange is for ", ranks,
        " ranks, but the communicator has ", call.communicator.size(), ", expected as many");
  check(call.how.pattern == call.exchange.pattern, call.where, ": the exchange is of ",
        to_string(call.exchange.pattern), " but the pattern is ", to_string(call.how.pattern),
        ", expected the same");
}

void check_tokens(const RankCall& call) {
  const Index queries = call.exchange.queries.tokens(call.rank());
  const Index keys = call.exchange.keys.tokens(call.rank());
  check(call.q.tokens() == queries, call.where, ": q has ", call.q.tokens(), " tokens, expected ",
        queries, " as placed on rank ", call.rank());
  check(call.k.tokens() == keys && call.v.tokens() == keys, call.where, ": k has ", call.k.tokens(),
        " tokens and v ", call.v.tokens(), ", expected ", keys, " as placed on rank ", call.rank());
}

/// Strict attention chooses tiles even where a few queries could go without: ranks with different
/// numbers of queries would choose differently.
Attention strict_of(const Attention& how) {
  Attention strict = how;
  strict.strict = true;
  strict.plan = nullptr;
  return strict;
}

Shape with_tokens(const AnyView& view, Index tokens) {
  return {view.batch(), view.heads(), tokens, view.dim()};
}

AnyView with_shape(const AnyView& view, Index tokens) {
  return AnyView::unchecked(view.data(), view.type(), with_tokens(view, tokens), view.strides());
}

}  // namespace

RankCall::RankCall(const char* where_, Communicator& communicator_,
                   const distributed::Exchange& exchange_, const AnyView& q_, const AnyView& k_,
                   const AnyView& v_, const Attention& how_, const Context& context_)
    : where(where_),
      communicator(communicator_),
      exchange(impl_of(exchange_)),
      q(q_),
      k(k_),
      v(v_),
      how(strict_of(how_)),
      context(context_) {
  keep_memory_of_calls();
  check_ranks(*this);
  check_readable(where, "q", q);
  check_readable(where, "k", k);
  check_readable(where, "v", v);
  check_tokens(*this);
  check(!exchange.hashed || exchange.queries == exchange.keys, where,
        ": queries and keys are placed differently, expected one placement under lsh");
  validate(whole_request());
}

Request RankCall::whole_request() const {
  return {where,
          stand_in(with_tokens(q, lengths().queries), q.type()),
          stand_in(with_tokens(k, lengths().keys), k.type()),
          stand_in(with_tokens(v, lengths().keys), v.type()),
          how,
          context};
}

Request RankCall::part_request(const RankPart& part, const Attention& how_of_part) const {
  const Lengths lengths = part.plan->lengths();
  return {where,
          with_shape(q, lengths.queries),
          with_shape(k, lengths.keys),
          with_shape(v, lengths.keys),
          how_of_part,
          context};
}

TileMessages RankCall::key_messages(const TileTransfer& transfer, Index parity) const {
  return {communicator,   transfer,  {k, v},           key_tiles(),
          lengths().keys, k.heads(), tag_keys + parity};
}

TileMessages RankCall::query_messages(const TileTransfer& transfer, std::vector<AnyView> operands,
                                      Index parity) const {
  return {communicator,      transfer,  std::move(operands), query_tiles(),
          lengths().queries, k.heads(), tag_queries + parity};
}

Attention how_of_part(const Attention& how, const RankPart& part) {
  Attention some = how;
  some.plan = part.plan;
  return some;
}

HeadRanges::HeadRanges(const RankCall& call) : heads_(call.k.batch() * call.k.heads()) {
  step_ = std::max<Index>(1, heads_);
  // The gradient of a bias that several heads share is one sum over all of them.
  if (call.how.bias.dense) return;
  constexpr Index worth_sending = Index{1} << 20;  // bytes
  // Every rank must cut alike, so by what a rank has on average, not by what it sends.
  const Index head_bytes = call.lengths().keys / call.exchange.keys.ranks() *
                           (call.k.dim() + call.v.dim()) * Index{sizeof(float)};
  step_ = std::clamp<Index>(worth_sending / std::max<Index>(1, head_bytes), 1, step_);
}

Index HeadRanges::count() const { return divide_up(heads_, step_); }

HeadRange HeadRanges::at(Index i) const {
  const Index first = i * step_;
  return {first, std::min(step_, heads_ - first)};
}

}  // namespace rapt::detail
