#include "rapt/kv_cache.h"

#include "attention/cache/kv_cache_impl.h"
#include "attention/call.h"
#include "base/check.h"

namespace rapt {
using namespace detail;

KvCache::KvCache(const CacheOptions& options, const Context& context)
    : impl_(std::make_unique<Impl>(options, context)) {}
KvCache::~KvCache() = default;
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;

KvCache::Sequence KvCache::add() {
  Impl::Tokens none;
  if (impl_->hash) none.places = std::make_shared<LshPlaces>(impl_->hash->no_places());
  impl_->sequences[impl_->next_sequence] = std::move(none);
  return impl_->next_sequence++;
}

KvCache::Sequence KvCache::fork(Sequence sequence) {
  const Impl::Tokens copy = impl_->tokens_of(sequence, "fork");
  const Impl::Tokens& placed = impl_->sequences[impl_->next_sequence] = copy;
  impl_->share(placed);
  return impl_->next_sequence++;
}

void KvCache::remove(Sequence sequence) {
  for (const Index page : impl_->tokens_of(sequence, "remove").pages) impl_->drop(page);
  impl_->sequences.erase(sequence);
}

void KvCache::append(Sequence sequence, AnyView k, AnyView v) {
  const PageLayout& layout = impl_->layout;
  Impl::Tokens& tokens = impl_->tokens_of(sequence, "append");
  const Index count = k.shape().rank() == 4 ? k.tokens() : 0;
  const Index heads = impl_->options.kv_heads;
  check_operand("append", "k", k, {1, heads, count, layout.dim});
  check_operand("append", "v", v, {1, heads, count, layout.value_dim});
  impl_->check_capacity(tokens, count);
  // Everything that may run out of memory comes first.
  for (Index t = tokens.count / tile; t < divide_up(tokens.count + count, tile); ++t)
    impl_->own_page(tokens, t);
  const bool fills = !impl_->hash && tokens.count % tile + count >= tile;
  Buffer<std::byte> scratch(fills ? impl_->head_scratch_bytes() : 0);
  impl_->place(tokens, &k, count);
  float key[max_dim], value[max_dim];
  for (Index i = 0; i < count; ++i) {
    const Index position = tokens.count + i;
    const Index page = tokens.pages[position / tile];
    for (Index head = 0; head < heads; ++head) {
      impl_->kernels.vectors.load(k.row(0, head, i), k.type(), layout.dim, key);
      if (impl_->hash) impl_->hash->normalize(key);
      impl_->kernels.vectors.load(v.row(0, head, i), v.type(), layout.value_dim, value);
      impl_->write_token(page, head, position % tile, key, value);
    }
    if (!impl_->hash && position % tile == tile - 1) impl_->make_full(page, scratch.data());
  }
  tokens.count += count;
  impl_->release_pages(tokens, tokens.count - count);
}

void KvCache::append_padding(Sequence sequence, Index count) {
  Impl::Tokens& tokens = impl_->tokens_of(sequence, "append_padding");
  check(impl_->hash != nullptr,
        "append_padding: the cache is not hashed, expected one with lsh; elsewhere a pattern hides "
        "what no query may see");
  check(count >= 0, "append_padding: ", count, " tokens given, expected 0 or more");
  impl_->check_capacity(tokens, count);
  for (Index t = tokens.count / tile; t < divide_up(tokens.count + count, tile); ++t)
    impl_->own_page(tokens, t);
  impl_->place(tokens, nullptr, count);
  const float zeros[max_dim] = {};
  for (Index i = tokens.count; i < tokens.count + count; ++i)
    for (Index head = 0; head < impl_->options.kv_heads; ++head)
      impl_->write_token(tokens.pages[i / tile], head, i % tile, zeros, zeros);
  tokens.count += count;
}

void KvCache::truncate(Sequence sequence, Index count) {
  Impl::Tokens& tokens = impl_->tokens_of(sequence, "truncate");
  check(0 <= count && count <= tokens.count, "truncate: ", count,
        " tokens asked for, expected 0 to ", tokens.count);
  const Index kept = divide_up(count, tile);
  check(count == 0 || tokens.pages[kept - 1] != Impl::gone, "truncate: token ", count - 1,
        " has left the window of ", impl_->options.window.value_or(0),
        "; expected more tokens, or 0");
  if (tokens.places.use_count() > 1) tokens.places = std::make_shared<LshPlaces>(*tokens.places);
  if (count % tile != 0 && !impl_->is_partial(tokens.pages[kept - 1])) {
    Buffer<std::byte> scratch(impl_->head_scratch_bytes());
    impl_->make_partial(impl_->own_page(tokens, kept - 1), count % tile, scratch.data());
  }
  for (Index t = kept; t < std::ssize(tokens.pages); ++t) impl_->drop(tokens.pages[t]);
  tokens.pages.resize(kept);
  if (tokens.places) tokens.places->truncate(count);
  tokens.count = count;
}

Index KvCache::tokens(Sequence sequence) const {
  return impl_->tokens_of(sequence, "tokens").count;
}
const CacheOptions& KvCache::options() const { return impl_->options; }
const Context& KvCache::context() const { return impl_->context; }
Index KvCache::pages() const {
  return static_cast<Index>(impl_->pages.size() - impl_->free_pages.size());
}
Index KvCache::bytes() const { return pages() * impl_->layout.page_bytes; }

}  // namespace rapt
