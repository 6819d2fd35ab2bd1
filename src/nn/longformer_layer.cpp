#include <algorithm>
#include <memory>
#include <numeric>

#include "base/check.h"
#include "base/random.h"
#include "rapt/nn/attention.h"

namespace rapt {
using namespace detail;
namespace {

/// Queries, keys and values of one sequence, or of several of one length, in a projection's rows.
LongformerOperands operands_of(const Tensor& qkv, const Tensor* global_qkv, Index row, Index items,
                               Index tokens, const SequenceHeads& shape) {
  const Index inner = shape.heads * shape.dim, width = 3 * inner;
  const auto part = [&](const Tensor& of, Index index) {
    return View::unchecked(of.data() + row * width + index * inner,
                           {items, shape.heads, tokens, shape.dim},
                           {tokens * width, shape.dim, width, 1});
  };
  LongformerOperands made{part(qkv, 0), part(qkv, 1), part(qkv, 2)};
  if (global_qkv == nullptr) return made;
  made.q_global = part(*global_qkv, 0);
  made.k_global = part(*global_qkv, 1);
  made.v_global = part(*global_qkv, 2);
  return made;
}

/// [items, heads, tokens, dim] into columns of rows as wide as `to` is, or back.
void put_heads(const Tensor& from, float* to, Index width) {
  const View x = from;
  for (Index item = 0; item < x.batch(); ++item)
    for (Index head = 0; head < x.heads(); ++head)
      for (Index t = 0; t < x.tokens(); ++t)
        std::copy_n(x.row(item, head, t), x.dim(),
                    to + (item * x.tokens() + t) * width + head * x.dim());
}

/// One call of the engine.
struct LongformerCall {
  Index row, items, tokens;
  Longformer how;
  Attended attended = {};
};

std::vector<LongformerCall> calls_of(const SequenceHeads& shape, const Longformer& how) {
  std::vector<LongformerCall> calls;
  const auto& lengths = shape.lengths;
  const bool alike = std::ranges::count(lengths, lengths.front()) == std::ssize(lengths);
  Index row = 0;
  for (std::size_t i = 0; i < (alike ? 1 : lengths.size()); ++i) {
    LongformerCall call{row, alike ? std::ssize(lengths) : 1, lengths[i], how};
    const Index rows = call.items * call.tokens;
    if (!how.classes.empty())
      call.how.classes.assign(how.classes.begin() + row, how.classes.begin() + row + rows);
    if (!alike) call.how.dropout.seed = random_bits(how.dropout.seed, {static_cast<Index>(i)});
    calls.push_back(std::move(call));
    row += rows;
  }
  return calls;
}

void undo(const LongformerCall& call, const Tensor& gradient, const Variable& qkv,
          const Variable& global, const SequenceHeads& shape, Tensor& dqkv, Tensor& dglobal,
          const Context& context) {
  const Index inner = shape.heads * shape.dim, width = 3 * inner;
  const LongformerOperands operands =
      operands_of(qkv.value(), global.empty() ? nullptr : &global.value(), call.row, call.items,
                  call.tokens, shape);
  const View dout = View::unchecked(gradient.data() + call.row * inner,
                                    {call.items, shape.heads, call.tokens, shape.dim},
                                    {call.tokens * inner, shape.dim, inner, 1});
  const LongformerGradients g =
      attend_longformer_backward(dout, operands, call.attended, call.how, context);
  const Tensor* local[] = {&g.dq, &g.dk, &g.dv};
  for (Index i = 0; i < 3; ++i)
    put_heads(*local[i], dqkv.data() + call.row * width + i * inner, width);
  if (global.empty()) return;
  const Tensor* others[] = {&g.dq_global, &g.dk_global, &g.dv_global};
  for (Index i = 0; i < 3; ++i)
    if (!others[i]->empty())
      put_heads(*others[i], dglobal.data() + call.row * width + i * inner, width);
}

}  // namespace

Variable longformer_attention(Tape& tape, const Variable& qkv, const Variable& global_qkv,
                              const SequenceHeads& shape, const Longformer& how) {
  const Index inner = shape.heads * shape.dim;
  const Index rows = std::accumulate(shape.lengths.begin(), shape.lengths.end(), Index{0});
  check(!qkv.empty() && qkv.shape() == Shape{rows, 3 * inner}, "longformer_attention: qkv ",
        qkv.empty() ? Shape{} : qkv.shape(), ", expected ", Shape{rows, 3 * inner});
  check(global_qkv.empty() || global_qkv.shape() == qkv.shape(),
        "longformer_attention: global_qkv has another shape than qkv");
  check(how.classes.empty() || std::ssize(how.classes) == rows,
        "longformer_attention: ", how.classes.size(), " classes of ", rows, " rows");
  Tensor out = Tensor::uninitialized({rows, inner});
  auto calls = std::make_shared<std::vector<LongformerCall>>(calls_of(shape, how));
  for (LongformerCall& call : *calls) {
    call.attended = attend_longformer(
        operands_of(qkv.value(), global_qkv.empty() ? nullptr : &global_qkv.value(), call.row,
                    call.items, call.tokens, shape),
        call.how, tape.context());
    put_heads(call.attended.out, out.data() + call.row * inner, inner);
  }
  if (!tape.records()) return tape.input(std::move(out));
  return tape.record(std::move(out), [=, context = tape.context()](const Tensor& gradient) {
    Tensor dqkv(qkv.shape());
    Tensor dglobal = global_qkv.empty() ? Tensor() : Tensor(qkv.shape());
    for (const LongformerCall& call : *calls)
      undo(call, gradient, qkv, global_qkv, shape, dqkv, dglobal, context);
    qkv.slot().add(std::move(dqkv));
    if (!global_qkv.empty()) global_qkv.slot().add(std::move(dglobal));
  });
}

}  // namespace rapt
