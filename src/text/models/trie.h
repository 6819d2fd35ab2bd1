#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace rapt::detail {

/// Words by their bytes: finds those that begin a text in one walk. Children of a node are
/// contiguous: 12 bytes per node, built in the time it takes to sort the words.
class Trie {
 public:
  using Entry = std::pair<std::string_view, std::int32_t>;
  static constexpr std::int32_t none = -1;

  Trie() : Trie(std::vector<Entry>()) {}
  /// Words differ and are not empty; values are not negative.
  explicit Trie(std::vector<Entry> words);

  static constexpr std::uint32_t root = 0;
  /// The node one byte further; root if there is none.
  std::uint32_t step(std::uint32_t node, std::uint8_t byte) const {
    if (node == root) return first_[byte];
    const Node& at = nodes_[node];
    std::uint32_t begin = at.children, count = at.count;
    while (count > 8) {
      const std::uint32_t half = count / 2;
      if (bytes_[begin + half] <= byte) {
        begin += half;
        count -= half;
      } else {
        count = half;
      }
    }
    for (std::uint32_t i = 0; i < count; ++i)
      if (bytes_[begin + i] == byte) return begin + i;
    return root;
  }
  /// The value of the word that ends at a node.
  std::int32_t value(std::uint32_t node) const { return nodes_[node].value; }

  struct Found {
    std::int32_t value = none;
    std::size_t length = 0;
  };
  Found longest(std::string_view text, std::uint32_t from = root) const {
    Found found;
    std::uint32_t node = from;
    for (std::size_t i = 0; i < text.size(); ++i) {
      node = step(node, static_cast<std::uint8_t>(text[i]));
      if (node == root) break;
      if (value(node) != none) found = {value(node), i + 1};
    }
    return found;
  }
  /// The value of exactly this word.
  std::int32_t find(std::string_view word) const {
    const Found found = longest(word);
    return !word.empty() && found.length == word.size() ? found.value : none;
  }
  /// The node a word leads to; root if none does.
  std::uint32_t walk(std::string_view word) const {
    std::uint32_t node = root;
    for (const char letter : word) {
      node = step(node, static_cast<std::uint8_t>(letter));
      if (node == root) break;
    }
    return node;
  }

 private:
  struct Node {
    std::uint32_t children = 0;
    std::int32_t value = none;
    std::uint16_t count = 0;
  };
  std::vector<Node> nodes_;
  std::vector<std::uint8_t> bytes_;            // that lead to each node
  std::array<std::uint32_t, 256> first_ = {};  // children of the root
};

}  // namespace rapt::detail
