#include "text/models/trie.h"

#include <algorithm>

#include "base/check.h"

namespace rapt::detail {

Trie::Trie(std::vector<Entry> words) {
  std::sort(words.begin(), words.end());
  struct Range {
    std::uint32_t node;
    std::size_t begin, end, depth;
  };
  nodes_.emplace_back();
  bytes_.push_back(0);
  // Breadth first: a node's words are a range of the sorted ones, its children the next bytes.
  std::vector<Range> level{{root, 0, words.size(), 0}}, next;
  for (; !level.empty(); level.swap(next), next.clear()) {
    for (const Range& range : level) {
      std::size_t begin = range.begin;
      if (begin < range.end && words[begin].first.size() == range.depth)
        nodes_[range.node].value = words[begin++].second;
      nodes_[range.node].children = static_cast<std::uint32_t>(nodes_.size());
      while (begin < range.end) {
        const char byte = words[begin].first[range.depth];
        std::size_t end = begin + 1;
        while (end < range.end && words[end].first[range.depth] == byte) ++end;
        check(nodes_.size() < 0xFFFFFFFF, "tokenizer: its words have too many letters");
        const auto child = static_cast<std::uint32_t>(nodes_.size());
        nodes_.emplace_back();
        bytes_.push_back(static_cast<std::uint8_t>(byte));
        ++nodes_[range.node].count;
        if (range.node == root) first_[static_cast<std::uint8_t>(byte)] = child;
        next.push_back({child, begin, end, range.depth + 1});
        begin = end;
      }
    }
  }
}

}  // namespace rapt::detail
