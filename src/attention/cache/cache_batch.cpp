#include "attention/cache/cache_batch.h"

#include "attention/pattern/pattern_node.h"
#include "attention/validate.h"

namespace rapt {
namespace {

/// One item of a [batch, heads, tokens, dim] view.
template <class V>
BasicAnyView<V> item_of(const BasicAnyView<V>& view, Index item) {
  Shape shape = view.shape();
  shape[0] = 1;
  return BasicAnyView<V>::trusted(view.row(item, 0, 0), view.type(), shape, view.strides());
}

const char* where_of(const Attention& how) {
  return how.pattern.node()->has_lsh() ? over_hashed_cache : over_cache;
}

}  // namespace

const Attention& attention_among(const Attention& how, Index tokens,
                                 std::list<Attention>& narrowed) {
  auto node = how.pattern.node()->among(tokens);
  if (node == nullptr) return how;
  narrowed.push_back(how);
  narrowed.back().pattern = Pattern(std::move(node));
  return narrowed.back();
}

Request cache_request(const AnyView& q, const CachedSequence& sequence, Index tokens,
                      const Attention& how, const Context& context) {
  const CacheOptions& options = sequence.options;
  const Index batch = q.shape().rank() == 4 ? q.batch() : 1;
  const Type type = options.type == CacheType::bf16 ? Type::bf16 : Type::f32;
  return {where_of(how),
          q,
          stand_in({batch, options.kv_heads, tokens, options.dim}, type),
          stand_in({batch, options.kv_heads, tokens, options.value_dim}, type),
          how,
          context,
          sequence};
}

CacheBatch::CacheBatch(const AnyView& q, const KvCache& cache,
                       std::span<const KvCache::Sequence> sequences, const Attention& how,
                       const Context& context, const ForwardOutput& output) {
  const KvCache::Body& body = cache.body();
  jobs_.reserve(sequences.size());
  for (Index item = 0; item < std::ssize(sequences); ++item) {
    const KvCache::Sequence number = sequences[static_cast<std::size_t>(item)];
    const KvCache::Body::Tokens& tokens = body.tokens_of(number, where_of(how));
    ForwardOutput to = output;
    to.out = item_of(output.out, item);
    to.first_row = item * q.heads() * q.tokens();
    jobs_.push_back(
        {cache_request(item_of(q, item), {body.options, &body, &tokens, number}, tokens.count,
                       attention_among(how, tokens.count, narrowed_), context),
         to});
    validate(jobs_.back().request);
  }
}

/// One sequence is what decoding asks for, and a short one takes less than a microsecond: its
/// request is made where it is used.
void dispatch_cache(const AnyView& q, const KvCache& cache,
                    std::span<const KvCache::Sequence> sequences, const Attention& how,
                    const Context& context, const ForwardOutput& output) {
  if (sequences.size() != 1) {
    CacheBatch batch(q, cache, sequences, how, context, output);
    return dispatch(batch.jobs());
  }
  const KvCache::Body& body = cache.body();
  const KvCache::Sequence number = sequences.front();
  const KvCache::Body::Tokens& tokens = body.tokens_of(number, where_of(how));
  std::list<Attention> narrowed;
  Job job{cache_request(q, {body.options, &body, &tokens, number}, tokens.count,
                        attention_among(how, tokens.count, narrowed), context),
          output};
  validate(job.request);
  dispatch({&job, 1});
}

}  // namespace rapt
