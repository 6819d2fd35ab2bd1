#include "rapt/cache.h"

#include "attention/cache_pages.h"
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
  body_->sequences[body_->next_sequence] = {};
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
  // Everything that may run out of memory comes first.
  for (Index t = tokens.count / tile; t < divide_up(tokens.count + count, tile); ++t)
    body_->own_page(tokens, t);
  float key[max_dim], value[max_dim];
  for (Index i = 0; i < count; ++i) {
    const Index position = tokens.count + i;
    const Index page = tokens.pages[static_cast<std::size_t>(position / tile)];
    for (Index head = 0; head < heads; ++head) {
      body_->kernels.load_numbers(k.row(0, head, i), k.type(), layout.dim, key);
      body_->kernels.load_numbers(v.row(0, head, i), v.type(), layout.value_dim, value);
      body_->write_token(page, head, position % tile, key, value);
    }
  }
  tokens.count += count;
  body_->let_go(tokens, tokens.count - count);
}

void KvCache::truncate(Sequence sequence, Index count) {
  Body::Tokens& tokens = body_->tokens_of(sequence, "truncate");
  check(0 <= count && count <= tokens.count, "truncate: ", count,
        " tokens asked for, expected 0 to ", tokens.count);
  const Index kept = divide_up(count, tile);
  check(count == 0 || tokens.pages[static_cast<std::size_t>(kept - 1)] != Body::gone,
        "truncate: token ", count - 1, " has left the window of ", body_->options.window,
        "; expected more tokens, or 0");
  for (auto t = static_cast<std::size_t>(kept); t < tokens.pages.size(); ++t)
    body_->drop(tokens.pages[t]);
  tokens.pages.resize(static_cast<std::size_t>(kept));
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
