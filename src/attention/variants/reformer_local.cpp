#include "rapt/reformer_local.h"

#include <algorithm>

#include "attention/call.h"
#include "attention/forward/unrounded_out.h"
#include "attention/lsh/lsh_order.h"
#include "attention/pattern/pattern_node.h"
#include "attention/validate.h"
#include "attention/variants/part.h"
#include "base/check.h"
#include "base/indexed_vector.h"

namespace rapt {
using namespace detail;
namespace {

/// Which chunks meet.
class Ring {
 public:
  Ring(const ReformerLocal& how, Index tokens)
      : how_(how),
        tokens_(tokens),
        chunks_(tokens <= how.chunk ? 1 : divide_up(tokens, how.chunk)) {}

  Index chunks() const { return chunks_; }
  /// Whether a chunk is met more than once.
  bool repeats() const { return chunks_ > 1 && how_.before + how_.after + 1 > chunks_; }
  Index chunk_of(Index token) const { return chunks_ == 1 ? 0 : token / how_.chunk; }
  Range tokens_of(Index chunk) const {
    if (chunks_ == 1) return {0, tokens_};
    return {chunk * how_.chunk, std::min(tokens_, (chunk + 1) * how_.chunk)};
  }
  /// Calls with(other chunk) for each that a chunk meets, as often as it does.
  template <class With>
  void for_each_met(Index chunk, const With& with) const {
    if (chunks_ == 1) return with(0);
    for (Index step = -how_.before; step <= how_.after; ++step)
      with(((chunk + step) % chunks_ + chunks_) % chunks_);
  }

 private:
  const ReformerLocal& how_;
  Index tokens_, chunks_;
};

/// Batch items with the same padding.
struct LocalPart {
  Index item = 0, items = 0;
  Pattern pattern;
  std::vector<Index> empty_rows = {};  // positions whose keys are all hidden
};

Ranges real_ranges(std::span<const std::uint8_t> real) {
  Ranges ranges;
  for (Index i = 0; i < std::ssize(real); ++i)
    if (element(real, i) != 0) append_clipped(ranges, i, i + 1, std::ssize(real));
  return ranges;
}

/// The pattern of items with these real tokens, all if there are none.
LocalPart part_with(const ReformerLocal& how, std::span<const std::uint8_t> real, Index tokens) {
  const Pattern unmasked = how.causal ? chunks(how.chunk, how.before, how.after) & causal()
                                      : chunks(how.chunk, how.before, how.after);
  if (real.empty()) return {.pattern = unmasked};
  LocalPart part;
  const Ranges seen = real_ranges(real);
  IndexedVector<Ranges> keys(tokens);
  Ranges near;
  for (Index i = 0; i < tokens; ++i) {
    unmasked.keys_of(i, {tokens, tokens}, near);
    intersect(near, seen, keys[i]);
    if (keys[i].empty()) part.empty_rows.push_back(i);
  }
  part.pattern = mask(tokens, std::move(keys));
  return part;
}

std::vector<LocalPart> parts_of(const ReformerLocal& how, Index batch, Index tokens) {
  const std::span<const std::uint8_t> real = how.attention_mask;
  const bool apart = !real.empty() && std::ssize(real) != tokens;
  std::vector<LocalPart> parts;
  for (Index item = 0; item < (apart ? batch : 1); ++item) {
    const auto of_item = apart ? real.subspan(to_size(item * tokens), to_size(tokens)) : real;
    parts.push_back(part_with(how, of_item, tokens));
    parts.back().item = item;
    parts.back().items = apart ? 1 : batch;
  }
  return parts;
}

void check_local(const char* where, const AnyView& q, const AnyView& k, const AnyView& v,
                 const ReformerLocal& how) {
  validate_operands(where, q, k, v, {.dropout = how.dropout});
  check(q.shape() == k.shape(), where, ": q has shape ", q.shape(), " and k ", k.shape(),
        ", expected the same");
  const auto between = [&](const char* what, Index number, Index least, Index most) {
    check(least <= number && number <= most, where, ": ", what, " is ", number, ", expected ",
          least, " to ", most);
  };
  between("chunk", how.chunk, 1, Index{1} << 20);
  between("before", how.before, 0, 1024);
  between("after", how.after, 0, 1024);
  const Index given = std::ssize(how.attention_mask), tokens = q.tokens();
  check(given == 0 || given == tokens || given == q.batch() * tokens, where, ": ", given,
        " numbers in attention_mask, expected none, ", tokens, " (tokens) or ", q.batch() * tokens,
        " (batch * tokens)");
  check(how.empty_rows == ReformerLocal::EmptyRows::zeros ||
            how.empty_rows == ReformerLocal::EmptyRows::sum,
        where, ": empty_rows is ", static_cast<int>(how.empty_rows),
        ", expected EmptyRows::zeros or EmptyRows::sum");
  check(how.empty_rows == ReformerLocal::EmptyRows::zeros || how.dropout.rate == 0, where,
        ": EmptyRows::sum and dropout are given, expected one of them");
}

/// One part as a call of its own. A ring that repeats itself needs keys that count several times:
/// that is hashed attention whose tokens stay where they are.
class LocalCall {
 public:
  LocalCall(const ReformerLocal& how, const LocalPart& part, const Ring& ring, Index number)
      : how_{.pattern = part.pattern,
             .dropout = dropout_of_part(how.dropout, number),
             .gradients = how.gradients} {
    if (!ring.repeats()) return;
    lsh_ = {.chunk = how.chunk,
            .buckets = {2},
            .before = how.before,
            .after = how.after,
            .keys = Lsh::Keys::separate};
    how_.pattern = lsh(*lsh_) & part.pattern;
  }

  Attended forward(const AnyMutableView& out, const AnyView& q, const AnyView& k, const AnyView& v,
                   const Context& context) const {
    return attend_into(out, q, k, v, in_place(q, context), context);
  }
  Gradients backward(const AnyView& dout, const AnyView& q, const AnyView& k, const AnyView& v,
                     const AnyView& out, const Rows& rows, const Context& context) const {
    return attend_backward(dout, q, k, v, {out, rows}, in_place(q, context), context);
  }

 private:
  Attention in_place(const AnyView& q, const Context& context) const {
    Attention how = how_;
    if (lsh_) how.order = keep_order({q, q, *lsh_, how_.rotations, {}, context});
    return how;
  }

  Attention how_;
  std::optional<Lsh> lsh_;
};

/// Sums of the rows of each chunk, [chunks][numbers]: of all tokens, or of those listed.
IndexedVector<double> chunk_sums(const Kernels& kernels, const AnyView& from, const Part& at,
                                 const Ring& ring, const std::vector<Index>& tokens) {
  IndexedVector<double> sums(ring.chunks() * from.dim());
  float row[max_dim];
  for (const Index i : tokens) {
    kernels.vectors.load(from.row(at.item, at.head, i), from.type(), from.dim(), row);
    double* to = sums.data() + ring.chunk_of(i) * from.dim();
    for (Index c = 0; c < from.dim(); ++c) to[c] += static_cast<double>(row[c]);
  }
  return sums;
}

/// Rows that see no key: each gets the sum of the values of its neighbourhood.
void write_sums(const Kernels& kernels, const AnyView& v, const AnyMutableView& out, const Part& at,
                const Ring& ring, const std::vector<Index>& empty_rows) {
  IndexedVector<Index> all(v.tokens());
  for (Index i = 0; i < v.tokens(); ++i) all[i] = i;
  const IndexedVector<double> sums = chunk_sums(kernels, v, at, ring, all);
  for (const Index i : empty_rows) {
    double total[max_dim] = {};
    ring.for_each_met(ring.chunk_of(i), [&](Index chunk) {
      for (Index c = 0; c < v.dim(); ++c) total[c] += sums[chunk * v.dim() + c];
    });
    float row[max_dim];
    std::transform(total, total + v.dim(), row, [](double x) { return static_cast<float>(x); });
    kernels.vectors.store(row, v.dim(), out.type(), out.row(at.item, at.head, i));
  }
}

/// And their gradients go back to all of them.
void add_sums_backward(const Kernels& kernels, const AnyView& dout, const AnyMutableView& dv,
                       const Part& at, const Ring& ring, const std::vector<Index>& empty_rows) {
  const IndexedVector<double> sums = chunk_sums(kernels, dout, at, ring, empty_rows);
  IndexedVector<double> met(sums.size());
  for (Index from = 0; from < ring.chunks(); ++from)
    ring.for_each_met(from, [&](Index to) {
      for (Index c = 0; c < dv.dim(); ++c) met[to * dv.dim() + c] += sums[from * dv.dim() + c];
    });
  float row[max_dim];
  for (Index i = 0; i < dv.tokens(); ++i) {
    const double* more = met.data() + ring.chunk_of(i) * dv.dim();
    void* to = dv.row(at.item, at.head, i);
    kernels.vectors.load(to, dv.type(), dv.dim(), row);
    for (Index c = 0; c < dv.dim(); ++c)
      row[c] = static_cast<float>(static_cast<double>(row[c]) + more[c]);
    kernels.vectors.store(row, dv.dim(), dv.type(), to);
  }
}

/// Calls with(item and head) for every item and head whose rows without keys are to be filled.
template <class With>
void for_each_empty_row(const ReformerLocal& how, const LocalPart& part, Index heads,
                        const With& with) {
  if (how.empty_rows == ReformerLocal::EmptyRows::zeros || part.empty_rows.empty()) return;
  for (Index item = part.item; item < part.item + part.items; ++item)
    for (Index head = 0; head < heads; ++head) with(Part{.item = item, .head = head});
}

}  // namespace

Attended attend_reformer_local(AnyView q, AnyView k, AnyView v, const ReformerLocal& how,
                               const Context& context) {
  check_local("attend_reformer_local", q, k, v, how);
  const Kernels& kernels = kernels_of(context);
  const Ring ring(how, q.tokens());
  Attended attended = empty_attended(q, v);
  UnroundedOut unrounded_out(attended.out, gradients_of(how));
  const AnyMutableView out = unrounded_out.view();
  Index number = 0;
  for (const LocalPart& part : parts_of(how, q.batch(), q.tokens())) {
    const Part at{part.item, part.items, 0, q.heads()};
    const Attended y =
        LocalCall(how, part, ring, number++)
            .forward(part_of(out, at), part_of(q, at), part_of(k, at), part_of(v, at), context);
    append(attended.rows, y.rows);
    std::copy(y.lse.numbers().begin(), y.lse.numbers().end(),
              attended.lse.data() + part.item * q.heads() * q.tokens());
    for_each_empty_row(how, part, q.heads(), [&](const Part& one) {
      write_sums(kernels, v, out, one, ring, part.empty_rows);
    });
  }
  unrounded_out.finish(attended.rows, context);
  return attended;
}

Gradients attend_reformer_local_backward(AnyView dout, AnyView q, AnyView k, AnyView v,
                                         const AttendedView& attended, const ReformerLocal& how,
                                         const Context& context) {
  constexpr const char* where = "attend_reformer_local_backward";
  check_local(where, q, k, v, how);
  check_attended(where, "attend_reformer_local", dout, attended,
                 {q.batch(), q.heads(), q.tokens(), v.dim()});
  const Ring ring(how, q.tokens());
  const AnyView out = unrounded(where, attended);
  Gradients g;
  g.dq = Tensor(q.shape(), q.type());
  g.dk = Tensor(k.shape(), k.type());
  g.dv = Tensor(v.shape(), v.type());
  Index number = 0;
  for (const LocalPart& part : parts_of(how, q.batch(), q.tokens())) {
    const Part at{part.item, part.items, 0, q.heads()};
    const Index rows_per_item = q.heads() * q.tokens();
    const Gradients of_part =
        LocalCall(how, part, ring, number++)
            .backward(part_of(dout, at), part_of(q, at), part_of(k, at), part_of(v, at),
                      part_of(out, at),
                      slice(attended.rows, part.item * rows_per_item, part.items * rows_per_item),
                      context);
    copy_into(of_part.dq, part_of(AnyMutableView(g.dq), at));
    copy_into(of_part.dk, part_of(AnyMutableView(g.dk), at));
    copy_into(of_part.dv, part_of(AnyMutableView(g.dv), at));
    for_each_empty_row(how, part, q.heads(), [&](const Part& one) {
      add_sums_backward(kernels_of(context), dout, g.dv, one, ring, part.empty_rows);
    });
  }
  return g;
}

}  // namespace rapt
