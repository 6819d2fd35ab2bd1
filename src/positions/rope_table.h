#pragma once

#include <atomic>
#include <memory>

#include "base/buffer.h"
#include "base/indexed_vector.h"
#include "rapt/tensor.h"

namespace rapt::detail {

/// How pairs rotate with the position. A row holds all cosines and then all sines, each times the
/// size of its pair.
struct PairRotations {
  IndexedVector<double> frequencies;  // radians per position
  IndexedVector<double> growth;       // logarithm of the growth per position, xPos only; else empty
  Index center = 0;                   // the position without growth
  double factor = 1;                  // of every cosine and sine

  Index pairs() const { return static_cast<Index>(frequencies.size()); }
  double angle(Index pair, Index position) const;
  double size(Index pair, Index position) const;
  void write_pair(Index position, Index pair, float* row) const;
  void write_row(Index position, float* row) const;
};

/// Rows of cosines and sines by position, in pages that are made when they are first asked for and
/// never change or go away: reading needs no lock.
class RopeTable {
 public:
  explicit RopeTable(PairRotations rotations);
  ~RopeTable();
  RopeTable(const RopeTable&) = delete;
  RopeTable& operator=(const RopeTable&) = delete;

  static constexpr Index page_rows = 128;
  static constexpr Index kept_positions = Index{1} << 20;

  const PairRotations& rotations() const { return rotations_; }
  Index pairs() const { return rotations_.pairs(); }
  Index row_numbers() const { return 2 * pairs(); }
  /// Whether the row of this position is kept in a page.
  static bool keeps(Index position) { return 0 <= position && position < kept_positions; }
  static Index page_of(Index position) { return position / page_rows; }

  bool has_page(Index page) const { return slot(page).load(std::memory_order_acquire) != nullptr; }
  /// Throws std::bad_alloc if memory is short. Several threads may make pages at a time.
  void make_page(Index page) const;
  /// A row of a page that has been made.
  const float* row(Index position) const {
    return slot(page_of(position)).load(std::memory_order_acquire) +
           position % page_rows * row_numbers();
  }

 private:
  using Slot = std::atomic<float*>;
  Slot& slot(Index page) const { return slots_.get()[page]; }
  std::size_t page_bytes() const;

  PairRotations rotations_;
  std::unique_ptr<Slot[]> slots_;
  Buffer<double> steps_;  // [page_rows] rows, counted from the first position of a page
};

}  // namespace rapt::detail
