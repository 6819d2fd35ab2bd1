#include "attention/pattern/ranges.h"

#include <algorithm>
#include <cstddef>

namespace rapt::detail {

Index count_keys(std::span<const Range> ranges) {
  Index keys = 0;
  for (const Range& range : ranges) keys += range.end - range.begin;
  return keys;
}

void intersect(std::span<const Range> a, std::span<const Range> b, Ranges& out) {
  out.clear();
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Index begin = std::max(a[i].begin, b[j].begin);
    const Index end = std::min(a[i].end, b[j].end);
    if (begin < end) out.push_back({begin, end});
    (a[i].end < b[j].end ? i : j) += 1;
  }
}

void unite(std::span<const Range> a, std::span<const Range> b, Ranges& out) {
  out.clear();
  for (std::size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    const bool from_a = j == b.size() || (i < a.size() && a[i].begin < b[j].begin);
    const Range& next = from_a ? a[i++] : b[j++];
    append_clipped(out, next.begin, next.end, next.end);
  }
}

void normalize(Ranges& ranges) {
  const auto earlier = [](const Range& a, const Range& b) { return a.begin < b.begin; };
  if (!std::is_sorted(ranges.begin(), ranges.end(), earlier))
    std::sort(ranges.begin(), ranges.end(), earlier);
  std::size_t kept = 0;
  for (const Range range : ranges) {
    if (kept > 0 && range.begin <= ranges[kept - 1].end)
      ranges[kept - 1].end = std::max(ranges[kept - 1].end, range.end);
    else
      ranges[kept++] = range;
  }
  ranges.resize(kept);
}

}  // namespace rapt::detail
