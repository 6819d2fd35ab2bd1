#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "rapt/pattern.h"

namespace rapt {

/// A run of tiles with the same mask or none: tiles first .. first + count - 1, each whole or each
/// with the same mask.
struct Visit {
  static constexpr std::int32_t whole = -1;
  std::int32_t first = 0;
  std::int32_t count = 0;
  std::int32_t mask = whole;
  bool operator==(const Visit&) const = default;
};

/// A pattern compiled for given lengths: for each tile of 64 queries, the tiles of 64 keys it
/// visits.
///
/// Immutable and cheap to copy; build it once and share it between heads, layers and steps of the
/// same lengths. Memory follows the number of runs, not the number of pairs.
class RAPT_API Plan {
 public:
  static constexpr Index tile = 64;

  /// Throws std::invalid_argument if the lengths are negative or the pattern does not fit them.
  Plan(const Pattern& pattern, Lengths lengths);

  const Pattern& pattern() const;
  Lengths lengths() const;
  Index query_tiles() const;
  Index key_tiles() const;

  // Numbers of tiles, masks and queries that do not exist are std::invalid_argument.

  /// Runs of key tiles in ascending order.
  std::span<const Visit> visits(Index query_tile) const;
  /// The transposed plan: runs of query tiles in ascending order. Built on first use, by one thread
  /// of those that ask.
  std::span<const Visit> visitors(Index key_tile) const;
  /// One word per query row of the tile; bit j stands for key j of the key tile. Rows past the last
  /// query are 0.
  std::span<const std::uint64_t, tile> mask(std::int32_t id) const;
  Index masks() const;

  /// Keys that the query sees.
  Index keys_seen(Index query) const;
  /// Allowed (query, key) pairs: of all queries, of one query tile.
  Index pairs() const;
  Index pairs(Index query_tile) const;
  /// Visited tiles, whole and masked.
  Index whole_tiles() const;
  Index masked_tiles() const;
  /// Memory held by the plan, the transposed half included once it exists, its pattern's tables
  /// not.
  Index bytes() const;

  /// A character picture at most `columns` wide: █ whole, ▒ masked (or mixed, where a character
  /// means several tiles), · absent. Empty if there are no tiles.
  std::string drawing(Index columns) const;

  struct Impl;

 private:
  friend struct detail::Access;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace rapt
