#include "attention/score/relative_gradient.h"

#include <algorithm>
#include <utility>

namespace rapt::detail {

RelativeGradient::RelativeGradient(const RelativeTiles* table, const Kernels& kernels)
    : kernels_(kernels), numbers_(table == nullptr ? 0 : tile * table->width()) {
  if (table == nullptr) return;
  const Index tiles = table->count();
  recent_ = Buffer<float>(tiles * numbers_);
  wide_ = Buffer<double>(tiles * numbers_);
  states_ = Buffer<State>(tiles);
  std::fill(states_.begin(), states_.end(), State::unused);
}

void RelativeGradient::clear() { std::fill(states_.begin(), states_.end(), State::unused); }

float* RelativeGradient::tile_sums(Index table_tile) {
  float* recent = recent_.data() + table_tile * numbers_;
  if (states_[table_tile] == State::unused) {
    std::fill_n(recent, numbers_, 0.0f);
    std::fill_n(wide_.data() + table_tile * numbers_, numbers_, 0.0);
  }
  states_[table_tile] = State::recent;
  return recent;
}

void RelativeGradient::flush() {
  for (Index t = 0; t < states_.size(); ++t) {
    if (states_[t] != State::recent) continue;
    kernels_.vectors.widen(recent_.data() + t * numbers_, wide_.data() + t * numbers_, numbers_);
    states_[t] = State::flushed;
  }
}

void RelativeGradient::add_to(double* sums) const {
  for (Index t = 0; t < states_.size(); ++t) {
    if (states_[t] == State::unused) continue;
    const double* from = wide_.data() + t * numbers_;
    double* to = sums + t * numbers_;
    for (Index i = 0; i < numbers_; ++i) to[i] += from[i];
  }
}

RelativeBandGradient::RelativeBandGradient(const RelativeTiles* table, const Kernels& kernels)
    : table_(table), kernels_(kernels) {
  if (table == nullptr) return;
  for (Half* half : {&lower_, &upper_}) {
    half->sums = Buffer<float>(tile * tile);
    half->seen = Buffer<std::uint64_t>(tile);
  }
}

void RelativeBandGradient::add(const float* scores, const TileMask& mask, Index distance,
                               const Queries& queries, RelativeGradient& gradient) {
  slide(table_->lower(distance), table_->upper(distance), queries, gradient);
  for (Index r = 0; r < queries.count; ++r) {
    // Key c of row r is 64 + c - r positions after the lower tile's first.
    const float* from = scores + r * tile;
    float* low = lower_.sums.data() + r * tile + tile - r;
    float* high = upper_.sums.data() + r * tile - r;
    for (Index c = 0; c < r; ++c) low[c] += from[c];
    for (Index c = r; c < tile; ++c) high[c] += from[c];
    const std::uint64_t word = mask.whole() ? ~std::uint64_t{0} : mask.words()[r];
    if (r > 0) lower_.seen[r] |= word << (tile - r);
    upper_.seen[r] |= word >> r;
  }
}

void RelativeBandGradient::finish(const Queries& queries, RelativeGradient& gradient) {
  multiply(lower_, queries, gradient);
  multiply(upper_, queries, gradient);
}

void RelativeBandGradient::slide(Index lower, Index upper, const Queries& queries,
                                 RelativeGradient& gradient) {
  if (lower_.table_tile == lower && upper_.table_tile == upper) return;
  multiply(lower_, queries, gradient);
  if (upper_.table_tile == lower) {
    std::swap(lower_, upper_);
  } else {
    multiply(upper_, queries, gradient);
    begin(lower_, lower);
  }
  begin(upper_, upper);
}

void RelativeBandGradient::begin(Half& half, Index table_tile) {
  half.table_tile = table_tile;
  std::fill(half.sums.begin(), half.sums.end(), 0.0f);
  std::fill(half.seen.begin(), half.seen.end(), std::uint64_t{0});
}

/// dTable += band' · rows of the queries, dQ += band · table
void RelativeBandGradient::multiply(Half& half, const Queries& queries,
                                    RelativeGradient& gradient) {
  if (half.table_tile == none) return;
  TileMask seen;
  seen.set(std::span<const std::uint64_t, tile>(half.seen.data(), tile), kernels_.lanes);
  if (queries.dqueries != nullptr) {
    accumulate_values(kernels_.tiles, half.sums.data(),
                      {table_->rows(half.table_tile), table_->width(), table_->finite()}, seen,
                      queries.count, queries.dqueries);
  }
  accumulate_transposed(kernels_.tiles, half.sums.data(), queries.rows, seen, queries.count,
                        gradient.tile_sums(half.table_tile));
  half.table_tile = none;
}

}  // namespace rapt::detail
