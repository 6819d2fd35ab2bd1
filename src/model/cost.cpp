#include "model/cost.h"

#include "attention/pattern/pattern_node.h"
#include "rapt/lsh.h"
#include "rapt/models/inspect.h"
#include "rapt/plan.h"

namespace rapt::detail {

double pairs_of(const Pattern& pattern, Lengths lengths) {
  if (const std::optional<Lsh> hashed = lsh_part(pattern))
    return static_cast<double>(lsh_pairs(*hashed, lengths.keys));
  return static_cast<double>(Plan(among(pattern, lengths.keys), lengths).pairs());
}

double forward_flops(const Transformer& model, Index items, Index tokens) {
  return inspect(model.config(), {.batch = items, .tokens = tokens}).flops;
}

}  // namespace rapt::detail
