#pragma once

#include <mutex>

#include "rapt/distributed/attention.h"
#include "support/engine.h"

namespace rapt::test {

/// Operands of a whole call.
struct WholeCall {
  AnyView q, k, v, dout;
  const Attention& how;
};

/// What attention over ranks answers, put together as if one machine had answered; what every rank
/// has is that of rank 0.
class RankAnswer {
 public:
  RankAnswer(const WholeCall& call, const distributed::Exchange& exchange);

  /// The work of one rank.
  void run(distributed::Communicator& communicator, const Context& context);
  Answer take() { return std::move(answer_); }

 private:
  void keep(Index rank, const Attended& mine, Gradients gradients);

  const WholeCall& call_;
  const distributed::Exchange& exchange_;
  std::mutex mutex_;
  Answer answer_;
};

/// The answer of ranks that are threads of this process.
Answer run_over_ranks(const WholeCall& call, const distributed::Exchange& exchange,
                      const Context& context);

}  // namespace rapt::test
