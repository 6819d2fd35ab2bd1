#include "rapt/bigbird.h"

#include <algorithm>
#include <cmath>

#include "attention/call.h"
#include "attention/forward/unrounded_out.h"
#include "attention/pattern/pattern_node.h"
#include "attention/validate.h"
#include "attention/variants/part.h"
#include "base/check.h"
#include "base/indexed_vector.h"

namespace rapt {
using namespace detail;
namespace {

void check_blocks(const char* where, const BigBird& how, Index tokens) {
  check(how.block >= 1 && how.block <= Index{1} << 20, where, ": block is ", how.block,
        ", expected 1 to ", Index{1} << 20);
  check(tokens >= 0, where, ": ", tokens, " tokens given, expected 0 or more");
  const Index count = divide_up(tokens, how.block);
  for (const BigBird::RandomBlocks& table : how.random) {
    check(std::ssize(table) <= count, where, ": random blocks of ", table.size(),
          " query blocks given, expected at most ", count);
    for (const std::vector<Index>& row : table)
      for (const Index block : row)
        check(0 <= block && block < count, where, ": random block ", block,
              " given, expected 0 to ", count - 1);
  }
}

/// Which blocks see which, in one head.
IndexedVector<std::vector<Index>> block_table(const BigBird& how, Index tokens, Index head) {
  const Index count = divide_up(tokens, how.block);
  IndexedVector<std::vector<Index>> table(count);
  for (Index row = 0; row < count; ++row) {
    std::vector<Index>& seen = table[row];
    if (row == 0 || row == count - 1) {
      for (Index block = 0; block < count; ++block) seen.push_back(block);
      continue;
    }
    seen = {0, row - 1, row, row + 1, count - 1};
    if (!how.random.empty()) {
      const BigBird::RandomBlocks& random = element(how.random, how.random.size() == 1 ? 0 : head);
      if (row < std::ssize(random)) {
        const std::vector<Index>& of_row = element(random, row);
        seen.insert(seen.end(), of_row.begin(), of_row.end());
      }
    }
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  }
  return table;
}

void check_bigbird(const char* where, const AnyView& q, const AnyView& k, const AnyView& v,
                   const BigBird& how) {
  validate_operands(where, q, k, v, {.scale = how.scale});
  check(q.shape() == k.shape(), where, ": q has shape ", q.shape(), " and k ", k.shape(),
        ", expected the same");
  check_blocks(where, how, q.tokens());
  const Index tables = std::ssize(how.random), given = std::ssize(how.attention_mask),
              tokens = q.tokens();
  check(tables <= 1 || tables == q.heads(), where, ": ", tables,
        " tables of random blocks given, expected none, 1 or ", q.heads(), " (heads)");
  check(how.first_block_counts >= 1 && how.first_block_counts <= 1 << 20, where,
        ": first_block_counts is ", how.first_block_counts, ", expected 1 to ", 1 << 20);
  check(given == 0 || given == tokens || given == q.batch() * tokens, where, ": ", given,
        " numbers in attention_mask, expected none, ", tokens, " (tokens) or ", q.batch() * tokens,
        " (batch * tokens)");
}

/// Some queries of some items and heads that share a pattern and a bias.
struct Slice {
  Part part;
  Index first, count;  // queries
  bool between;        // the first and the last block
};

std::vector<Slice> slices_of(const BigBird& how, const AnyView& q) {
  const Index tokens = q.tokens(), items = std::ssize(how.attention_mask) > tokens ? 1 : q.batch();
  const Index heads = how.random.size() > 1 ? 1 : q.heads();
  const Index last = tokens == 0 ? 0 : (tokens - 1) / how.block * how.block;
  std::vector<Slice> slices;
  for (Index item = 0; item < q.batch(); item += items)
    for (Index head = 0; head < q.heads(); head += heads) {
      const Part part{item, items, head, heads};
      if (how.first_block_counts == 1 || last <= how.block) {
        slices.push_back({part, 0, tokens, false});
        continue;
      }
      slices.push_back({part, 0, how.block, false});
      slices.push_back({part, how.block, last - how.block, true});
      slices.push_back({part, last, tokens - last, false});
    }
  return slices;
}

/// One slice as a call.
class BigBirdCall {
 public:
  BigBirdCall(const BigBird& how, const Slice& slice, Index tokens) : slice_(slice) {
    how_.scale = how.scale;
    how_.gradients = how.gradients;
    how_.pattern = pattern_of(how, tokens);
    if (!slice.between) return;
    bias_ = Tensor({1, 1, 1, tokens});
    std::fill_n(bias_.data(), std::min(tokens, how.block),
                static_cast<float>(std::log(static_cast<double>(how.first_block_counts))));
    how_.bias = dense_bias(bias_);
    how_.bias.dense->fixed = true;
  }

  template <class V>
  BasicAnyView<V> queries(const BasicAnyView<V>& view) const {
    return tokens_of(keys(view), slice_.first, slice_.count);
  }
  template <class V>
  BasicAnyView<V> keys(const BasicAnyView<V>& view) const {
    return part_of(view, slice_.part);
  }
  const Attention& how() const { return how_; }

 private:
  bool is_real(const BigBird& how, Index tokens, Index token) const {
    if (how.attention_mask.empty()) return true;
    const Index item = std::ssize(how.attention_mask) > tokens ? slice_.part.item : 0;
    return element(how.attention_mask, item * tokens + token) != 0;
  }

  Pattern pattern_of(const BigBird& how, Index tokens) const {
    const Pattern pattern = bigbird(how, tokens, slice_.part.head);
    if (how.attention_mask.empty() && slice_.count == tokens) return pattern;
    Ranges real, near;
    for (Index j = 0; j < tokens; ++j)
      if (is_real(how, tokens, j)) append_clipped(real, j, j + 1, tokens);
    IndexedVector<Ranges> keys(slice_.count);
    for (Index i = 0; i < slice_.count; ++i) {
      if (!is_real(how, tokens, slice_.first + i)) continue;
      pattern.keys_of(slice_.first + i, {tokens, tokens}, near);
      intersect(near, real, keys[i]);
    }
    return mask(tokens, std::move(keys));
  }

  const Slice& slice_;
  Tensor bias_;
  Attention how_;
};

/// Calls with(row among all rows, row of the slice).
template <class With>
void for_each_row(const Slice& slice, const AnyView& q, const With& with) {
  std::size_t own = 0;
  for (Index item = slice.part.item; item < slice.part.item + slice.part.items; ++item)
    for (Index head = slice.part.head; head < slice.part.head + slice.part.heads; ++head)
      for (Index i = slice.first; i < slice.first + slice.count; ++i)
        with(to_size((item * q.heads() + head) * q.tokens() + i), own++);
}

/// Calls with(item, head, token) for all rows of a view.
template <class View, class With>
void for_each_token(const View& view, const With& with) {
  for (Index item = 0; item < view.batch(); ++item)
    for (Index head = 0; head < view.heads(); ++head)
      for (Index i = 0; i < view.tokens(); ++i) with(item, head, i);
}

/// Adds rows of f32.
void add_into(const AnyView& from, const AnyMutableView& to) {
  for_each_token(to, [&](Index item, Index head, Index i) {
    const auto* x = static_cast<const float*>(from.row(item, head, i));
    auto* y = static_cast<float*>(to.row(item, head, i));
    for (Index c = 0; c < to.dim(); ++c) y[c] += x[c];
  });
}

/// An operand as f32: gradients of several slices are added before they are rounded.
class Widened {
 public:
  Widened(const Kernels& kernels, const AnyView& view) : view_(view) {
    if (view.type() == Type::f32) return;
    copy_ = Tensor::uninitialized(view.shape());
    const AnyMutableView to = copy_;
    for_each_token(view, [&](Index item, Index head, Index i) {
      kernels.vectors.load(view.row(item, head, i), view.type(), view.dim(),
                           static_cast<float*>(to.row(item, head, i)));
    });
    view_ = copy_;
  }
  const AnyView& view() const { return view_; }

 private:
  Tensor copy_;
  AnyView view_;
};

Tensor narrowed(const Kernels& kernels, Tensor gradient, Type type) {
  if (type == Type::f32) return gradient;
  Tensor out = Tensor::uninitialized(gradient.shape(), type);
  const AnyView from = gradient;
  const AnyMutableView to = out;
  for_each_token(from, [&](Index item, Index head, Index i) {
    kernels.vectors.store(static_cast<const float*>(from.row(item, head, i)), from.dim(), type,
                          to.row(item, head, i));
  });
  return out;
}

Gradients backward_of_slices(const AnyView& dout, const AnyView& q, const AnyView& k,
                             const AnyView& v, const AnyView& out, const Rows& all,
                             const BigBird& how, const Context& context) {
  Gradients g;
  g.dq = Tensor(q.shape());
  g.dk = Tensor(k.shape());
  g.dv = Tensor(v.shape());
  for (const Slice& slice : slices_of(how, q)) {
    const BigBirdCall call(how, slice, q.tokens());
    Rows rows;
    for_each_row(slice, q, [&](std::size_t row, std::size_t) {
      rows.max.push_back(all.max[row]);
      rows.sum.push_back(all.sum[row]);
    });
    const Gradients of_slice =
        attend_backward(call.queries(dout), call.queries(q), call.keys(k), call.keys(v),
                        {call.queries(out), rows}, call.how(), context);
    copy_into(of_slice.dq, call.queries(AnyMutableView(g.dq)));
    add_into(of_slice.dk, call.keys(AnyMutableView(g.dk)));
    add_into(of_slice.dv, call.keys(AnyMutableView(g.dv)));
  }
  return g;
}

}  // namespace

Pattern bigbird(const BigBird& how, Index tokens, Index head) {
  check_blocks("bigbird", how, tokens);
  check(head >= 0 && (how.random.size() <= 1 || head < std::ssize(how.random)), "bigbird: head is ",
        head, ", expected 0 or more and one that has a table of random blocks");
  return blocks(how.block, block_table(how, tokens, head));
}

Attended attend_bigbird(AnyView q, AnyView k, AnyView v, const BigBird& how,
                        const Context& context) {
  check_bigbird("attend_bigbird", q, k, v, how);
  Attended attended = empty_attended(q, v);
  attended.rows.max.resize(to_size(attended.lse.elements()));
  attended.rows.sum.resize(to_size(attended.lse.elements()));
  UnroundedOut unrounded_out(attended.out, gradients_of(how));
  const AnyMutableView out = unrounded_out.view();
  for (const Slice& slice : slices_of(how, q)) {
    const BigBirdCall call(how, slice, q.tokens());
    const Attended y = attend_into(call.queries(out), call.queries(q), call.keys(k), call.keys(v),
                                   call.how(), context);
    for_each_row(slice, q, [&](std::size_t all, std::size_t own) {
      attended.lse.numbers()[all] = y.lse.numbers()[own];
      attended.rows.max[all] = y.rows.max[own];
      attended.rows.sum[all] = y.rows.sum[own];
    });
  }
  unrounded_out.finish(attended.rows, context);
  return attended;
}

Gradients attend_bigbird_backward(AnyView dout, AnyView q, AnyView k, AnyView v,
                                  const AttendedView& attended, const BigBird& how,
                                  const Context& context) {
  constexpr const char* where = "attend_bigbird_backward";
  check_bigbird(where, q, k, v, how);
  check_attended(where, "attend_bigbird", dout, attended,
                 {q.batch(), q.heads(), q.tokens(), v.dim()});
  const Kernels& kernels = kernels_of(context);
  const auto wide = [&](const AnyView& view) { return Widened(kernels, view); };
  const Widened wide_dout = wide(dout), wide_q = wide(q), wide_k = wide(k), wide_v = wide(v),
                wide_out = wide(unrounded(where, attended));
  Gradients g = backward_of_slices(wide_dout.view(), wide_q.view(), wide_k.view(), wide_v.view(),
                                   wide_out.view(), attended.rows, how, context);
  g.dq = narrowed(kernels, std::move(g.dq), q.type());
  g.dk = narrowed(kernels, std::move(g.dk), k.type());
  g.dv = narrowed(kernels, std::move(g.dv), v.type());
  return g;
}

}  // namespace rapt
