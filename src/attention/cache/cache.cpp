#include "rapt/cache.h"

#include "attention/cache/cache_pages.h"
#include "attention/call.h"
#include "base/check.h"

namespace rapt {

std::string text(CacheType type) {
  return type == CacheType::f32 ? "f32" : type == CacheType::bf16 ? "bf16" : "int8";
}

CacheType parse_cache_type(const std::string& name) {
  for (const CacheType type : {CacheType::f32, CacheType::bf16, CacheType::int8})
    if (name == text(type)) return type;
  fail("cache type: \"", name, "\" given, expected f32, bf16 or int8");
}

KvCache::KvCache(const CacheOptions& options, const Context& context)
    : body_(std::make_unique<Body>(options, context)) {}
KvCache::~KvCache() = default;
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;

KvCache::Sequence KvCache::add() {
  Body::Tokens none;
  if (body_->hash) none.places = std::make_shared<LshPlaces>(body_->hash->no_places());
  body_->sequences[body_->next_sequence] = std::move(none);
  return body_->next_sequence++;
}

KvCache::Sequence KvCache::fork(Sequence sequence) {
  const Body::Tokens copy = body_->tokens_of(sequence, "fork");
  const Body::Tokens& placed = body_->sequences[body_->next_sequence] = copy;
  body_->share(placed);
  return body_->next_sequence++;
}

void KvCache::remove(Sequence sequence) {
  for (const Index page : body_->tokens_of(sequence, "remove").pages) body_->drop(page);
  body_->sequences.erase(sequence);
}

void KvCache::append(Sequence sequence, AnyView k, AnyView v) {
  const PageLayout& layout = body_->layout;
  Body::Tokens& tokens = body_->tokens_of(sequence, "append");
  const Index count = k.shape().rank() == 4 ? k.tokens() : 0;
  const Index heads = body_->options.kv_heads;
  check_operand("append", "k", k, {1, heads, count, layout.dim});
  check_operand("append", "v", v, {1, heads, count, layout.value_dim});
  body_->check_room(tokens, count);
  // Everything that may run out of memory comes first.
  for (Index t = tokens.count / tile; t < divide_up(tokens.count + count, tile); ++t)
    body_->own_page(tokens, t);
  const bool fills = !body_->hash && tokens.count % tile + count >= tile;
  Buffer<std::byte> room(fills ? body_->closing_bytes() : 0);
  body_->place(tokens, &k, count);
  float key[max_dim], value[max_dim];
  for (Index i = 0; i < count; ++i) {
    const Index position = tokens.count + i;
    const Index page = tokens.pages[static_cast<std::size_t>(position / tile)];
    for (Index head = 0; head < heads; ++head) {
      body_->kernels.load_numbers(k.row(0, head, i), k.type(), layout.dim, key);
      if (body_->hash) body_->hash->normalize(key);
      body_->kernels.load_numbers(v.row(0, head, i), v.type(), layout.value_dim, value);
      body_->write_token(page, head, position % tile, key, value);
    }
    if (!body_->hash && position % tile == tile - 1) body_->close(page, room.data());
  }
  tokens.count += count;
  body_->let_go(tokens, tokens.count - count);
}

void KvCache::append_padding(Sequence sequence, Index count) {
  Body::Tokens& tokens = body_->tokens_of(sequence, "append_padding");
  check(body_->hash != nullptr,
        "append_padding: the cache is not hashed, expected one with lsh; elsewhere a pattern hides "
        "what no query may see");
  check(count >= 0, "append_padding: ", count, " tokens given, expected 0 or more");
  body_->check_room(tokens, count);
  for (Index t = tokens.count / tile; t < divide_up(tokens.count + count, tile); ++t)
    body_->own_page(tokens, t);
  body_->place(tokens, nullptr, count);
  const float zeros[max_dim] = {};
  for (Index i = tokens.count; i < tokens.count + count; ++i)
    for (Index head = 0; head < body_->options.kv_heads; ++head)
      body_->write_token(tokens.pages[static_cast<std::size_t>(i / tile)], head, i % tile, zeros,
                         zeros);
  tokens.count += count;
}

void KvCache::truncate(Sequence sequence, Index count) {
  Body::Tokens& tokens = body_->tokens_of(sequence, "truncate");
  check(0 <= count && count <= tokens.count, "truncate: ", count,
        " tokens asked for, expected 0 to ", tokens.count);
  const Index kept = divide_up(count, tile);
  check(count == 0 || tokens.pages[static_cast<std::size_t>(kept - 1)] != Body::gone,
        "truncate: token ", count - 1, " has left the window of ", body_->options.window,
        "; expected more tokens, or 0");
  if (tokens.places.use_count() > 1) tokens.places = std::make_shared<LshPlaces>(*tokens.places);
  if (count % tile != 0 && !body_->is_open(tokens.pages[static_cast<std::size_t>(kept - 1)])) {
    Buffer<std::byte> room(body_->closing_bytes());
    body_->reopen(body_->own_page(tokens, kept - 1), count % tile, room.data());
  }
  for (auto t = static_cast<std::size_t>(kept); t < tokens.pages.size(); ++t)
    body_->drop(tokens.pages[t]);
  tokens.pages.resize(static_cast<std::size_t>(kept));
  if (tokens.places) tokens.places->truncate(count);
  tokens.count = count;
}

Index KvCache::tokens(Sequence sequence) const {
  return body_->tokens_of(sequence, "tokens").count;
}
const CacheOptions& KvCache::options() const { return body_->options; }
const Context& KvCache::context() const { return body_->context; }
Index KvCache::pages() const {
  return static_cast<Index>(body_->pages.size() - body_->free_pages.size());
}
Index KvCache::bytes() const { return pages() * body_->layout.page_bytes; }

}  // namespace rapt
