#pragma once

#include "attention/backward/backward_tiles.h"
#include "distributed/attention/rank_gradients.h"

namespace rapt::detail {

/// What backward reads of the queries of this rank.
struct OwnQueries {
  AnyView dout;
  const BackwardInput& input;
};

/// Backward over a part, a range of heads at a time: meanwhile the operands of the next range
/// arrive, and gradients that the last one computed for others go home.
class BackwardPart {
 public:
  BackwardPart(const RankCall& call, const RankPart& part, Wanted wanted,
               const BackwardRoute& route, const OwnQueries& own);

  void run(RankGradients& gradients);

  const Call& call() const { return compute_; }
  BackwardPass& pass() { return *pass_; }

 private:
  /// Messages of a range of heads.
  struct Messages {
    TileMessages keys, queries;
    TileReturns key_returns, query_returns;

    void start(const HeadRange& heads);
    void progress();
  };
  Messages messages(Index parity) const;
  void load_received(const Messages& messages, const HeadRange& heads);
  void copy_rows(const OwnQueries& own);
  void take_returns(Messages& messages, RankGradients& gradients);
  Index group() const { return compute_.group; }

  const RankCall& rank_;
  const RankPart& part_;
  OwnQueries own_;
  CallPart tiles_;
  Attention how_;
  Call compute_;
  std::unique_ptr<BackwardPass> pass_;
  BackwardInput input_;
};

/// Numbers of queries as rows that travel: [batch, heads, queries, floats in a number].
template <class T>
AnyView as_rows(const Buffer<T>& numbers, const Shape& rows) {
  constexpr Index floats = sizeof(T) / sizeof(float);
  const Shape shape{rows[0], rows[1], rows[2], floats};
  return AnyView::unchecked(numbers.data(), Type::f32, shape, shape.row_major());
}

}  // namespace rapt::detail
