#include "attention/variants/longformer_tokens.h"

#include <algorithm>

#include "attention/pattern/ranges.h"
#include "base/indexed_vector.h"

namespace rapt::detail {
namespace {

/// The positions whose class passes the test.
template <class Test>
Ranges ranges_of(const IndexedVector<TokenClass>& classes, const Test& test) {
  Ranges ranges;
  for (Index i = 0; i < std::ssize(classes); ++i) {
    if (!test(classes[i])) continue;
    if (!ranges.empty() && ranges.back().end == i) {
      ++ranges.back().end;
    } else {
      ranges.push_back({i, i + 1});
    }
  }
  return ranges;
}

Ranges before(const Ranges& ranges, Index end) {
  Ranges kept;
  for (const Range& range : ranges)
    if (range.begin < end) kept.push_back({range.begin, std::min(range.end, end)});
  return kept;
}

}  // namespace

LongformerTokens::LongformerTokens(const Longformer& how, Index item, Index tokens)
    : how_(how), tokens_(tokens), classes_(tokens, TokenClass::local) {
  if (!how.classes.empty()) {
    const bool one_for_all = std::ssize(how.classes) == tokens;
    std::copy_n(how.classes.begin() + (one_for_all ? 0 : item * tokens), tokens, classes_.begin());
  }
  global_ranges_ = ranges_of(classes_, [](TokenClass c) { return c == TokenClass::global; });
  real_ranges_ = ranges_of(classes_, [](TokenClass c) { return c != TokenClass::padding; });
  for (const Range& range : global_ranges_)
    for (Index i = range.begin; i < range.end; ++i) globals_.push_back(i);
}

/// Tokens in the window that are no padding.
Ranges LongformerTokens::window_of(Index position, Index dilation) const {
  Ranges seen, out;
  const Index after = how_.causal ? 0 : how_.window;
  if (dilation == 1) {
    append_clipped(seen, saturating_subtract(position, how_.window),
                   saturating_add(saturating_add(position, after), 1), tokens_);
  } else {
    const Index first = std::min(how_.window, position / dilation);
    const Index last = std::min(after, (tokens_ - 1 - position) / dilation);
    for (Index t = -first; t <= last; ++t)
      seen.push_back({position + t * dilation, position + t * dilation + 1});
  }
  intersect(seen, real_ranges_, out);
  return out;
}

Pattern LongformerTokens::local(Index dilation) const {
  IndexedVector<Ranges> keys(tokens_);
  for (Index i = 0; i < tokens_; ++i) {
    if (classes_[i] != TokenClass::local) continue;
    unite(window_of(i, dilation), how_.causal ? before(global_ranges_, i + 1) : global_ranges_,
          keys[i]);
  }
  return mask(tokens_, std::move(keys));
}

Pattern LongformerTokens::global() const {
  std::vector<Ranges> keys;
  for (const Index i : globals_)
    keys.push_back(how_.causal ? before(real_ranges_, i + 1) : real_ranges_);
  return mask(tokens_, std::move(keys));
}

}  // namespace rapt::detail
