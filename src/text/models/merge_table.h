#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace rapt::detail {

/// The token that two neighbours become, and its rank.
struct Joined {
  std::uint32_t rank;
  std::int32_t result;
};

/// A hash table of token pairs in one flat array: looked up several times per letter of a text.
class MergeTable {
 public:
  MergeTable() : MergeTable(0) {}
  explicit MergeTable(std::size_t pairs) : slots_(std::bit_ceil(2 * pairs + 2)) {}

  /// False if the pair is there already.
  bool insert(std::int32_t left, std::int32_t right, Joined joined) {
    Slot& slot = slots_[place_of(left, right)];
    if (slot.left >= 0) return false;
    slot = {left, right, joined};
    return true;
  }
  /// Null if they do not join.
  const Joined* find(std::int32_t left, std::int32_t right) const {
    const Slot& slot = slots_[place_of(left, right)];
    return slot.left >= 0 ? &slot.joined : nullptr;
  }

 private:
  struct Slot {
    std::int32_t left = -1, right = -1;
    Joined joined = {0, 0};
  };
  /// Where the pair is, or the empty slot where it belongs.
  std::size_t place_of(std::int32_t left, std::int32_t right) const {
    const auto key = static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = static_cast<std::size_t>((key ^ key >> 31) * 0x9E3779B97F4A7C15u >> 20) & mask;
    while (slots_[at].left >= 0 && (slots_[at].left != left || slots_[at].right != right))
      at = (at + 1) & mask;
    return at;
  }
  std::vector<Slot> slots_;
};

}  // namespace rapt::detail
