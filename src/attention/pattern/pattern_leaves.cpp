#include <algorithm>

#include "attention/pattern/pattern_node.h"
#include "base/check.h"
#include "base/sizes.h"

namespace rapt {
using namespace detail;

namespace {

std::string text_of(Index number) { return std::to_string(number); }

/// Where a diagonal leaf puts the query.
Index place(const QueryPosition& at, Align align) {
  return align == Align::last ? at.position : at.query;
}

void check_align(Align align, const char* name) {
  check(align == Align::last || align == Align::first, name, ": align is ", static_cast<int>(align),
        ", expected Align::last or Align::first");
}

struct Full {
  bool operator==(const Full&) const = default;
  Range range_of(const QueryPosition& at) const { return {0, at.keys}; }
  std::string text() const { return "full"; }
};

struct Causal {
  Align align;
  bool operator==(const Causal&) const = default;
  Range range_of(const QueryPosition& at) const { return {0, saturating_add(place(at, align), 1)}; }
  std::string text() const { return align == Align::last ? "causal" : "causal(first)"; }
};

struct Window {
  Index left;
  Index right;
  Align align;
  bool operator==(const Window&) const = default;
  Range range_of(const QueryPosition& at) const {
    const Index here = place(at, align);
    return {saturating_subtract(here, left), saturating_add(saturating_add(here, right), 1)};
  }
  std::string text() const {
    const char* end = align == Align::last ? ")" : ", first)";
    return "window(" + text_of(left) + ", " + text_of(right) + end;
  }
};

/// Global tokens as ranges: neighbours are one range.
struct Tokens {
  Ranges positions;
  bool operator==(const Tokens&) const = default;

  bool contain(Index position) const {
    const auto after =
        std::upper_bound(positions.begin(), positions.end(), position,
                         [](Index wanted, const Range& range) { return wanted < range.begin; });
    return after != positions.begin() && position < std::prev(after)->end;
  }
  void keys_of(const QueryPosition& at, Ranges& out) const {
    if (contain(at.position))
      append_clipped(out, 0, at.keys, at.keys);
    else
      out.assign(positions.begin(), positions.end());
  }
  void fit(Lengths lengths) const {
    if (positions.empty()) return;
    const Index last = positions.back().end - 1;
    check(last < lengths.keys, "tokens: position ", last, " does not exist among ", lengths.keys,
          " keys");
  }
  Tokens among(Index keys) const {
    Tokens some;
    for (const Range& range : positions)
      if (range.begin < keys) some.positions.push_back({range.begin, std::min(range.end, keys)});
    return some;
  }
  std::string text() const {
    std::vector<Index> all;
    for (const Range& range : positions)
      for (Index position = range.begin; position < range.end; ++position) all.push_back(position);
    return "tokens(" + list_text(all) + ")";
  }
};

struct Prefix {
  Index n;
  bool operator==(const Prefix&) const = default;
  Range range_of(const QueryPosition& at) const {
    return at.position >= 0 && at.position < n ? Range{0, n} : Range{};
  }
  std::string text() const { return "prefix(" + text_of(n) + ")"; }
};

struct Keys {
  Index n;
  bool operator==(const Keys&) const = default;
  Range range_of(const QueryPosition&) const { return {0, n}; }
  std::string text() const { return "keys(" + text_of(n) + ")"; }
};

/// Towards +infinity, for numbers of either sign.
Index divide_upward(Index number, Index step) { return -divide_down(-number, step); }

struct Dilated {
  Index step;
  Index left;
  Index right;
  bool operator==(const Dilated&) const = default;
  void keys_of(const QueryPosition& at, Ranges& out) const {
    // Clipping the multiples first keeps every product inside the keys.
    const Index first = std::max(-left, divide_upward(-at.position, step));
    const Index last = std::min(right, divide_down(at.keys - 1 - at.position, step));
    if (first > last) return;
    if (step == 1) return append_clipped(out, at.position + first, at.position + last + 1, at.keys);
    for (Index m = first; m <= last; ++m) {
      const Index key = at.position + m * step;
      out.push_back({key, key + 1});
    }
  }
  std::string text() const {
    return "dilated(" + text_of(step) + ", " + text_of(left) + ", " + text_of(right) + ")";
  }
};

struct Chunks {
  Index size;
  Index before;
  Index after;
  bool operator==(const Chunks&) const = default;
  void keys_of(const QueryPosition& at, Ranges& out) const {
    if (at.position < 0) return;
    const Index count = divide_up(at.keys, size);
    if (before >= count || after >= count || before + after + 1 >= count)
      return append_clipped(out, 0, at.keys, at.keys);
    const auto add = [&](Index first, Index last) {
      append_clipped(out, first * size, saturating_multiply(last, size), at.keys);
    };
    const Index first = at.position / size - before;
    const Index last = at.position / size + after + 1;
    if (first < 0) {
      add(0, last);
      add(first + count, count);
    } else if (last > count) {
      add(0, last - count);
      add(first, count);
    } else {
      add(first, last);
    }
  }
  std::string text() const {
    return "chunks(" + text_of(size) + ", " + text_of(before) + ", " + text_of(after) + ")";
  }
};

}  // namespace

std::string detail::list_text(std::span<const Index> numbers) {
  std::string text = "{";
  for (const Index number : numbers) {
    if (text.size() > 1) text += ", ";
    text += text_of(number);
  }
  return text + "}";
}

Pattern full() {
  static const Pattern pattern = leaf_pattern(Full{});
  return pattern;
}

Pattern causal(Align align) {
  check_align(align, "causal");
  return leaf_pattern(Causal{align});
}

Pattern window(Index left, Index right, Align align) {
  check_align(align, "window");
  return leaf_pattern(Window{left, right, align});
}

Pattern tokens(std::vector<Index> positions) {
  Ranges ranges;
  ranges.reserve(positions.size());
  for (const Index position : positions) {
    check(position >= 0 && position <= largest_position, "tokens: position ", position,
          " given, expected 0 to ", largest_position);
    ranges.push_back({position, position + 1});
  }
  normalize(ranges);
  return leaf_pattern(Tokens{std::move(ranges)});
}

Pattern prefix(Index n) {
  check(n >= 0, "prefix: ", n, " positions given, expected 0 or more");
  return leaf_pattern(Prefix{n});
}

Pattern keys(Index n) {
  check(n >= 0, "keys: ", n, " keys given, expected 0 or more");
  return leaf_pattern(Keys{n});
}

Pattern chunks(Index size, Index before, Index after) {
  check(size >= 1 && size <= largest_position, "chunks: size is ", size, ", expected 1 to ",
        largest_position);
  check(before >= 0 && after >= 0, "chunks: ", before, " chunks before and ", after,
        " after given, expected 0 or more");
  return leaf_pattern(Chunks{size, before, after});
}

Pattern dilated(Index step, Index left, Index right) {
  check(step >= 1, "dilated: step is ", step, ", expected 1 or more");
  check(left >= 0 && right >= 0, "dilated: ", left, " steps to the left and ", right,
        " to the right given, expected 0 or more");
  return leaf_pattern(Dilated{step, left, right});
}

}  // namespace rapt
