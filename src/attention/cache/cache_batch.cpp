#include "attention/cache/cache_batch.h"

#include "attention/pattern/pattern_node.h"
#include "attention/validate.h"
#include "base/indexed_vector.h"

namespace rapt::detail {
namespace {

/// One item of a [batch, heads, tokens, dim] view.
template <class V>
BasicAnyView<V> item_of(const BasicAnyView<V>& view, Index item) {
  Shape shape = view.shape();
  shape[0] = 1;
  return BasicAnyView<V>::unchecked(view.row(item, 0, 0), view.type(), shape, view.strides());
}

const char* where_of(const Attention& how) {
  return node_of(how.pattern)->has_lsh() ? over_hashed_cache : over_cache;
}

}  // namespace

const Attention& attention_among(const Attention& how, Index tokens,
                                 std::list<Attention>& narrowed) {
  auto node = node_of(how.pattern)->among(tokens);
  if (node == nullptr) return how;
  narrowed.push_back(how);
  narrowed.back().pattern = pattern_of(std::move(node));
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
          stand_in({batch, options.kv_heads, tokens, options.filled_value_dim()}, type),
          how,
          context,
          sequence};
}

CacheBatch::CacheBatch(const AnyView& q, const KvCache& cache,
                       std::span<const KvCache::Sequence> sequences, const Attention& how,
                       const ForwardOutput& output) {
  const KvCache::Impl& impl = impl_of(cache);
  jobs_.reserve(sequences.size());
  for (Index item = 0; item < std::ssize(sequences); ++item) {
    const KvCache::Sequence number = element(sequences, item);
    const KvCache::Impl::Tokens& tokens = impl.tokens_of(number, where_of(how));
    ForwardOutput to = output;
    to.out = item_of(output.out, item);
    to.first_row = item * q.heads() * q.tokens();
    jobs_.push_back(
        {cache_request(item_of(q, item), {impl.options, &impl, &tokens, number}, tokens.count,
                       attention_among(how, tokens.count, narrowed_), cache.context()),
         to});
    validate(jobs_.back().request);
  }
}

/// Decoding mostly has one sequence, and a short one takes less than a microsecond: its
/// request is made where it is used.
void dispatch_cache(const AnyView& q, const KvCache& cache,
                    std::span<const KvCache::Sequence> sequences, const Attention& how,
                    const ForwardOutput& output) {
  if (sequences.size() != 1) {
    CacheBatch batch(q, cache, sequences, how, output);
    return dispatch(batch.jobs());
  }
  const KvCache::Impl& impl = impl_of(cache);
  const KvCache::Sequence number = sequences.front();
  const KvCache::Impl::Tokens& tokens = impl.tokens_of(number, where_of(how));
  std::list<Attention> narrowed;
  Job job{cache_request(q, {impl.options, &impl, &tokens, number}, tokens.count,
                        attention_among(how, tokens.count, narrowed), cache.context()),
          output};
  validate(job.request);
  dispatch({&job, 1});
}

}  // namespace rapt::detail
