#include "attention/backward/shared_sums.h"

#include <algorithm>

#include "base/indexed_vector.h"

namespace rapt::detail {

double* SumScratch::acquire() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    free_.reserve((slabs_.size() + 1) * sums_per_slab);  // so that release() cannot fail
    double* slab = slabs_.emplace_back(checked_product({sums_per_slab, numbers_})).data();
    for (Index i = sums_per_slab; i-- > 0;) free_.push_back(slab + i * numbers_);
  }
  double* sums = free_.back();
  free_.pop_back();
  return sums;
}

void SumScratch::release(double* sums) {
  const std::lock_guard lock(mutex_);
  free_.push_back(sums);
}

QuerySums::QuerySums(const Call& call, const KeyGroups& groups, Index width)
    : call_(call),
      groups_(groups),
      scratch_(tile * width),
      sums_of_(call.batch * call.heads * call.query_tiles()),
      additions_(call.batch * call.heads * call.query_tiles()),
      deliveries_(1) {}

QuerySums::Visitors QuerySums::visitors_of(const Share& share) const {
  Visitors visitors{0, 0};
  Index next = 0;  // groups below are counted
  for (const Visit& visit : call_.plan->visits(share.query_tile)) {
    const Index first = std::max(next, groups_.of(visit.first));
    const Index end = groups_.of(visit.first + visit.count - 1) + 1;
    visitors.before += std::max<Index>(0, std::min(share.key_group, end) - first);
    visitors.all += std::max<Index>(0, end - first);
    next = std::max(next, end);
  }
  return visitors;
}

void QuerySums::widen(const Share& share, double*& sums, bool first) {
  if (first) sums = scratch_.acquire();
  const VectorKernels& vectors = call_.kernels.vectors;
  (first ? vectors.widen_first : vectors.widen)(share.numbers, sums, share.count);
}

RelativeSums::RelativeSums(const RelativeTiles* table)
    : table_(table),
      sums_(table == nullptr ? 0 : table->count() * tile * table->width()),
      additions_(1) {
  std::fill(sums_.begin(), sums_.end(), 0.0);
}

void RelativeSums::add(Index task, const RelativeGradient& part) {
  if (sums_.size() == 0) return;
  additions_.enter(0, task);
  part.add_to(sums_.data());
  additions_.release(0);
}

void RelativeSums::write(double factor, Tensor& gradient) const {
  if (table_ == nullptr) return;
  const Index dim = table_->dim();
  IndexedVector<double> totals(gradient.elements());
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

}  // namespace rapt::detail
