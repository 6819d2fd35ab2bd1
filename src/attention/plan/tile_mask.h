#pragma once

#include <cstdint>
#include <span>

#include "kernels/kernels.h"

namespace rapt::detail {

/// Columns of a masked tile that each strip of rows touches, in whole vectors.
void clip_strips(const std::uint64_t* mask, Index row_strips, Index lanes, Clips& clips);
/// Which of the first `rows` query rows of a masked tile each strip of key columns touches, in
/// steps that the products take.
inline constexpr Index clip_rows = 8;
void clip_columns(std::span<const std::uint64_t, tile> mask, Index rows, Clips& clips);

/// Which keys of a tile each query sees: all of them, or those of a mask, with the columns that
/// each strip of rows touches.
class TileMask {
 public:
  void set_whole() { words_ = nullptr; }
  void set(std::span<const std::uint64_t, tile> words, Index lanes);
  /// Sets some rows, filled up to a whole strip with words of 0; the other rows are undefined.
  void set_rows(const std::uint64_t* words, Index rows, Index lanes);
  /// One bit per row: whether it sees any key.
  std::uint64_t rows_that_see(Index rows = tile) const;
  bool whole() const { return words_ == nullptr; }
  const std::uint64_t* words() const { return words_; }
  /// Null for a whole tile, as the kernels expect.
  const Clip* clips() const { return whole() ? nullptr : clips_; }

 private:
  const std::uint64_t* words_ = nullptr;
  Clips clips_;
};

}  // namespace rapt::detail
