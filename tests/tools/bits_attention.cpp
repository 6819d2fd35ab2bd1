#include <algorithm>

#include "rapt/bigbird.h"
#include "rapt/kv_cache.h"
#include "rapt/longformer.h"
#include "rapt/reformer_local.h"
#include "support/cases.h"
#include "support/engine.h"
#include "tools/bits.h"

namespace rapt::test {
namespace {

/// Every case whose size lets all contexts run it in a moment.
std::vector<Case> grid() {
  std::vector<Case> cases;
  for (const Case& c : attention_cases())
    if (c.batch * c.heads * c.queries * c.keys < 400000) cases.push_back(c);
  return cases;
}

void f32_grid(Bits& bits, const Context& context) {
  for (const Case& c : grid()) {
    Operands operands(c);
    operands.how.stats = true;
    const Answer answer = run(operands, context);
    bits.add(answer.forward), bits.add(answer.backward);
  }
}

Tensor copied(View view, Type type) {
  Tensor tensor(view.shape());
  float* to = tensor.data();
  for (Index item = 0; item < view.batch(); ++item)
    for (Index head = 0; head < view.heads(); ++head)
      for (Index token = 0; token < view.tokens(); ++token)
        to = std::copy_n(view.row(item, head, token), view.dim(), to);
  return tensor.converted(type);
}

void half_grid(Bits& bits, const Context& context, Type type) {
  for (const Case& c : grid()) {
    const Operands o(c);
    const Tensor q = copied(o.q, type), k = copied(o.k, type), v = copied(o.v, type);
    const Attended y = attend(q, k, v, o.how, context);
    bits.add(y);
    bits.add(attend_backward(copied(o.dout, type), q, k, v, y, o.how, context));
  }
}

void bf16_grid(Bits& bits, const Context& context) { half_grid(bits, context, Type::bf16); }
void f16_grid(Bits& bits, const Context& context) { half_grid(bits, context, Type::f16); }

/// Long enough for several key tiles and tasks.
void long_calls(Bits& bits, const Context& context) {
  for (const char* line :
       {"heads=2; kv_heads=1; queries=1100; keys=1100; dim=64; value_dim=64; pattern=causal",
        "heads=2; kv_heads=2; queries=1500; keys=1500; dim=32; value_dim=64; "
        "pattern=window(100, 100) | tokens({0, 700}); bias=alibi",
        "batch=2; heads=4; kv_heads=2; queries=1; keys=3000; dim=128; value_dim=128",
        "heads=8; kv_heads=2; queries=5; keys=2500; dim=64; value_dim=64; pattern=causal"}) {
    const Operands o(parse_case(line));
    for (const Type type : {Type::f32, Type::bf16}) {
      const Tensor q = copied(o.q, type), k = copied(o.k, type), v = copied(o.v, type);
      const Attended y = attend(q, k, v, o.how, context);
      bits.add(y);
      bits.add(attend_backward(copied(o.dout, type), q, k, v, y, o.how, context));
    }
  }
}

/// A prompt, then tokens one by one, then three at once, over pages of each type.
void cache(Bits& bits, const Context& context) {
  for (const CacheType type : {CacheType::f32, CacheType::bf16, CacheType::int8})
    for (const Index dim : {20, 64, 128})
      for (const Index heads : {2, 8}) {
        const Small small({2, heads, 300, dim}, {2, 2, 300, dim});
        KvCache pages({.kv_heads = 2, .dim = dim, .type = type}, context);
        const std::vector<KvCache::Sequence> both = {pages.add(), pages.add()};
        const auto part = [](const Tensor& x, Index first, Index count, Index item, Index items) {
          const View all = x.view();
          Shape shape = all.shape();
          shape[0] = items, shape[2] = count;
          return View::unchecked(all.row(item, 0, first), shape, all.strides());
        };
        Index first = 0;
        for (const Index count : {130, 1, 1, 60, 3, 1, 64, 1}) {
          for (Index item = 0; item < 2; ++item)
            pages.append(both[static_cast<std::size_t>(item)], part(small.k, first, count, item, 1),
                         part(small.v, first, count, item, 1));
          const View q = part(small.q, first, count, 0, 2);
          bits.add(attend(q, pages, both, {.pattern = causal()}));
          bits.add(attend(q, pages, both, {.pattern = causal(), .strict = true}));
          bits.add(attend(q, pages, both, {.pattern = causal() & window(40, 0)}));
          first += count;
        }
      }
}

void lsh_calls(Bits& bits, const Context& context) {
  for (const Lsh& options :
       {Lsh{.chunk = 16, .rounds = 2}, Lsh{.chunk = 8, .rounds = 3, .buckets = {4, 2}, .after = 1},
        Lsh{.chunk = 32, .rounds = 2, .buckets = {8}, .keys = Lsh::Keys::separate},
        Lsh{.chunk = 8, .rounds = 2, .buckets = {4}, .duplicates = Lsh::Duplicates::once}}) {
    const Small small({2, 2, 333, 16}, {2, 2, 333, 16});
    const Tensor& k = options.keys == Lsh::Keys::shared ? small.q : small.k;
    for (const Pattern& pattern : {lsh(options), lsh(options) & causal()}) {
      const Attention how{.pattern = pattern};
      const Attended y = attend(small.q, k, small.v, how, context);
      bits.add(y);
      bits.add(attend_backward(small.dout, small.q, k, small.v, y, how, context));
    }
  }
}

void lsh_cache(Bits& bits, const Context& context) {
  const Lsh options{.chunk = 8, .rounds = 3, .buckets = {4, 2}};
  for (const CacheType type : {CacheType::f32, CacheType::bf16, CacheType::int8}) {
    KvCache pages({.kv_heads = 2, .dim = 16, .type = type, .lsh = CacheLsh{.lsh = options}},
                  context);
    const KvCache::Sequence sequence = pages.add();
    for (const Index count : {100, 1, 1, 30, 1}) {
      const Small small({1, 2, count, 16}, {1, 2, count, 16}, static_cast<std::uint64_t>(count));
      pages.append(sequence, small.q, small.v);
      bits.add(attend(small.q, pages, {&sequence, 1}, {.pattern = lsh(options) & causal()}));
    }
  }
}

void longformer(Bits& bits, const Context& context) {
  const Small local({2, 2, 200, 16}, {2, 2, 200, 16}), global({2, 2, 200, 16}, {2, 2, 200, 16}, 7);
  std::vector<TokenClass> classes(400, TokenClass::local);
  classes[0] = classes[77] = classes[200] = TokenClass::global;
  std::fill(classes.begin() + 390, classes.end(), TokenClass::padding);
  const LongformerOperands operands{local.q, local.k, local.v, global.q, global.k, global.v};
  for (const Index dilation : {1, 3}) {
    const Longformer how{.window = 20, .dilation = {dilation}, .classes = classes};
    const Attended y = attend_longformer(operands, how, context);
    bits.add(y.out), bits.add(y.rows.max), bits.add(y.global_rows.sum);
    const LongformerGradients g = attend_longformer_backward(local.dout, operands, y, how, context);
    for (const Tensor* tensor : {&g.dq, &g.dk, &g.dv, &g.dq_global, &g.dk_global, &g.dv_global})
      bits.add(*tensor);
  }
}

void bigbird_and_local(Bits& bits, const Context& context) {
  const Small small({2, 2, 100, 16}, {2, 2, 100, 16});
  const BigBird bird{.block = 8, .random = {{{}, {4}, {7, 2}}}, .first_block_counts = 2};
  const Attended b = attend_bigbird(small.q, small.k, small.v, bird, context);
  bits.add(b);
  bits.add(attend_bigbird_backward(small.dout, small.q, small.k, small.v, b, bird, context));
  const ReformerLocal chunks{.chunk = 16, .after = 1};
  const Attended c = attend_reformer_local(small.q, small.k, small.v, chunks, context);
  bits.add(c);
  bits.add(
      attend_reformer_local_backward(small.dout, small.q, small.k, small.v, c, chunks, context));
}

}  // namespace

const std::vector<Section>& attention_sections() {
  static const std::vector<Section> all = {{"attention f32", f32_grid},
                                           {"attention bf16", bf16_grid},
                                           {"attention f16", f16_grid},
                                           {"attention long", long_calls},
                                           {"cache", cache},
                                           {"lsh", lsh_calls},
                                           {"lsh cache", lsh_cache},
                                           {"longformer", longformer},
                                           {"bigbird and reformer local", bigbird_and_local}};
  return all;
}

}  // namespace rapt::test
