#include "positions/rope_table.h"

#include <cmath>
#include <utility>

#include "base/flush_denormals.h"
#include "base/memory.h"

namespace rapt::detail {

double PairRotations::angle(Index pair, Index position) const {
  return static_cast<double>(position) * frequencies[pair];
}

double PairRotations::size(Index pair, Index position) const {
  if (growth.empty()) return factor;
  const auto distance = static_cast<double>(position - center);
  return factor * std::exp(growth[pair] * distance);
}

void PairRotations::write_pair(Index position, Index pair, float* row) const {
  row[pair] = static_cast<float>(size(pair, position) * std::cos(angle(pair, position)));
  row[pairs() + pair] = static_cast<float>(size(pair, position) * std::sin(angle(pair, position)));
}

void PairRotations::write_row(Index position, float* row) const {
  for (Index pair = 0; pair < pairs(); ++pair) write_pair(position, pair, row);
}

RopeTable::RopeTable(PairRotations rotations)
    : rotations_(std::move(rotations)),
      slots_(new Slot[kept_positions / page_rows]()),
      steps_(page_rows * row_numbers()) {
  const FlushDenormals guard;  // whatever the caller rounds like, rapt rounds to nearest
  const PairRotations from_center{rotations_.frequencies, rotations_.growth, 0, 1};
  for (Index r = 0; r < page_rows; ++r) {
    double* row = steps_.data() + r * row_numbers();
    for (Index i = 0; i < pairs(); ++i) {
      row[i] = from_center.size(i, r) * std::cos(from_center.angle(i, r));
      row[pairs() + i] = from_center.size(i, r) * std::sin(from_center.angle(i, r));
    }
  }
}

RopeTable::~RopeTable() {
  for (Index page = 0; page < kept_positions / page_rows; ++page)
    release_memory(slot(page).load(std::memory_order_relaxed), page_bytes());
}

std::size_t RopeTable::page_bytes() const {
  return to_size(page_rows * row_numbers()) * sizeof(float);
}

/// The rotation of a page's first position times the steps within a page: one sine for 128 rows,
/// and in f64 the product is as exact as a sine of its own.
void RopeTable::make_page(Index page) const {
  if (has_page(page)) return;
  const Index first = page * page_rows;
  auto* rows = static_cast<float*>(allocate_memory(page_bytes()));
  for (Index i = 0; i < pairs(); ++i) {
    const double c = rotations_.size(i, first) * std::cos(rotations_.angle(i, first));
    const double s = rotations_.size(i, first) * std::sin(rotations_.angle(i, first));
    for (Index r = 0; r < page_rows; ++r) {
      const double* step = steps_.data() + r * row_numbers() + i;
      float* to = rows + r * row_numbers() + i;
      to[0] = static_cast<float>(c * step[0] - s * step[pairs()]);
      to[pairs()] = static_cast<float>(c * step[pairs()] + s * step[0]);
    }
  }
  float* none = nullptr;
  if (!slot(page).compare_exchange_strong(none, rows, std::memory_order_acq_rel))
    release_memory(rows, page_bytes());  // another thread was first
}

}  // namespace rapt::detail
