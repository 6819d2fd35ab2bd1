#include "attention/shared_sums.h"

#include <algorithm>

namespace rapt {
namespace {

/// How many groups before `key_group` visit the query tile.
Index rank(const Plan& plan, Index query_tile, Index key_group, Index group_tiles) {
  Index count = 0;
  Index next = 0;  // groups below are counted
  for (const Visit& visit : plan.visits(query_tile)) {
    const Index first = std::max(next, visit.first / group_tiles);
    const Index last = std::min(key_group - 1, (visit.first + visit.count - 1) / group_tiles);
    if (first > last) continue;
    count += last - first + 1;
    next = last + 1;
  }
  return count;
}

}  // namespace

QuerySums::QuerySums(const Call& call)
    : tiles_(call.query_tiles()),
      width_(call.padded(call.dim)),
      sums_(checked_product({call.batch, call.heads, tiles_, tile, width_})),
      turns_(call.batch * call.heads * tiles_) {}

bool QuerySums::enter(const Plan& plan, Index owner, Index query_tile, Index key_group,
                      Index group_tiles) {
  const Index turn = rank(plan, query_tile, key_group, group_tiles);
  turns_.enter(place(owner, query_tile), turn);
  return turn == 0;
}

void QuerySums::leave(Index owner, Index query_tile) { turns_.leave(place(owner, query_tile)); }

RelativeSums::RelativeSums(const RelativeTiles* table)
    : table_(table),
      sums_(table == nullptr ? 0 : table->count() * tile * table->width()),
      turns_(1) {
  std::fill(sums_.begin(), sums_.end(), 0.0);
}

void RelativeSums::add(Index task, const RelativeGradient& part) {
  if (sums_.size() == 0) return;
  turns_.enter(0, task);
  part.add_to(sums_.data());
  turns_.leave(0);
}

void RelativeSums::write(double factor, Tensor& gradient) const {
  if (table_ == nullptr) return;
  const Index dim = table_->dim();
  std::vector<double> totals(static_cast<std::size_t>(gradient.elements()));
  for (Index t = 0; t < table_->count(); ++t) {
    for (Index r = 0; r < tile; ++r) {
      const double* from = sums_.data() + (t * tile + r) * table_->width();
      double* to = totals.data() + table_->table_row(t, r) * dim;
      for (Index c = 0; c < dim; ++c) to[c] += from[c];
    }
  }
  std::transform(totals.begin(), totals.end(), gradient.data(),
                 [&](double x) { return static_cast<float>(x * factor); });
}

}  // namespace rapt
