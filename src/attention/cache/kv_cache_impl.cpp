#include "attention/cache/kv_cache_impl.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "attention/call.h"
#include "base/check.h"
#include "base/sizes.h"

namespace rapt {
using namespace detail;
namespace {

Index number_bytes_of(CacheType type) {
  return type == CacheType::f32 ? 4 : type == CacheType::bf16 ? 2 : 1;
}

const CacheOptions& checked(const CacheOptions& o) {
  check(o.kv_heads >= 1, "KvCache: ", o.kv_heads, " kv_heads given, expected at least 1");
  check(1 <= o.dim && o.dim <= max_dim, "KvCache: dim is ", o.dim, ", expected 1 to ", max_dim);
  const Index value_dim = o.filled_value_dim();
  check(0 < value_dim && value_dim <= max_dim, "KvCache: value_dim is ", value_dim,
        ", expected 1 to ", max_dim);
  check(!o.window || *o.window >= 1, "KvCache: a window of ", o.window.value_or(0),
        " tokens given, expected at least 1, or no window");
  check(o.pinned >= 0, "KvCache: ", o.pinned, " pinned tokens given, expected 0 or more");
  check(o.pinned == 0 || o.window, "KvCache: ", o.pinned,
        " pinned tokens without a window, which keeps all; expected a window, or none pinned");
  check(!o.lsh || !o.window, "KvCache: lsh and a window of ", o.window.value_or(0),
        " given, expected one of them: hashed tokens may be asked for wherever they stand");
  return o;
}

/// Words of values fill whole rows of 64 bytes, whatever the instruction set.
constexpr Index word_columns = 16;

/// Writes numbers with a common scale; returns it.
float quantize(const float* numbers, Index count, std::int8_t* out) {
  float largest = 0;
  bool special = false;
  for (Index c = 0; c < count; ++c) {
    largest = std::max(largest, std::fabs(numbers[c]));
    special |= !std::isfinite(numbers[c]);
  }
  const float scale = special ? std::numeric_limits<float>::quiet_NaN() : largest / 127;
  const float inverse = scale > 0 ? 1 / scale : 0;
  for (Index c = 0; c < count; ++c) {
    const float scaled = special ? 0 : std::nearbyint(numbers[c] * inverse);
    out[c] = static_cast<std::int8_t>(std::clamp(scaled, -127.0f, 127.0f));
  }
  return scale;
}

}  // namespace

PageLayout::PageLayout(const CacheOptions& o, const Kernels& kernels)
    : type(o.type),
      dim(o.dim),
      value_dim(o.filled_value_dim()),
      width(round_up(value_dim, kernels.lanes)),
      value_width(type == CacheType::f32 ? width : round_up(value_dim, word_columns)),
      panel(kernels.tiles.panel),
      number_bytes(number_bytes_of(type)),
      key_bytes(tile * round_up(dim * number_bytes, 4)),
      value_bytes(tile * value_width * number_bytes),
      scale_bytes(type == CacheType::int8 ? 2 * tile * Index{sizeof(float)} : 0),
      head_bytes(round_up(key_bytes + value_bytes + scale_bytes, 64)),
      page_bytes(checked_product({head_bytes, o.kv_heads})) {}

template <class T>
void PageLayout::write(const PageHead& to, Index slot, const T* key, const T* value) const {
  constexpr Index in_word = 4 / sizeof(T);
  auto* keys = reinterpret_cast<T*>(to.keys);
  for (Index c = 0; c < dim; ++c)
    keys[(c / in_word * tile + slot) * in_word + c % in_word] = key[c];
  const Index row = slot / (in_word * word_gap) * word_gap + slot % word_gap;
  auto* values = reinterpret_cast<T*>(to.values) + row * value_width * in_word;
  for (Index c = 0; c < value_dim; ++c) values[c * in_word + slot / word_gap % in_word] = value[c];
}

void PageLayout::read(const PageHead& from, Index slot, float* key, float* value) const {
  const Index first_key = slot / panel * panel;
  const Index step = std::min(panel, tile - first_key);
  const auto* keys = reinterpret_cast<const float*>(from.keys) + first_key * dim + slot - first_key;
  for (Index c = 0; c < dim; ++c) key[c] = keys[c * step];
  const auto* values = reinterpret_cast<const float*>(from.values);
  for (Index first = 0; first < value_dim; first += panel) {
    const Index columns = std::min(panel, width - first);
    std::copy_n(values + first * tile + slot * columns, std::min(columns, value_dim - first),
                value + first);
  }
}

template <class T>
void PageLayout::read(const PageHead& from, Index slot, T* key, T* value) const {
  constexpr Index in_word = 4 / sizeof(T);
  const auto* keys = reinterpret_cast<const T*>(from.keys);
  for (Index c = 0; c < dim; ++c)
    key[c] = keys[(c / in_word * tile + slot) * in_word + c % in_word];
  const Index row = slot / (in_word * word_gap) * word_gap + slot % word_gap;
  const auto* values = reinterpret_cast<const T*>(from.values) + row * value_width * in_word;
  for (Index c = 0; c < value_dim; ++c) value[c] = values[c * in_word + slot / word_gap % in_word];
}

void PageLayout::arrange(const Kernels& kernels, const PageHead& rows, Index count,
                         Index key_columns, const PageHead& to) const {
  if (type == CacheType::int8) {
    std::memset(to.keys, 0, to_size(key_bytes));
    std::memset(to.values, 0, to_size(value_bytes));
    const auto* keys = reinterpret_cast<const std::int8_t*>(rows.keys);
    const auto* values = reinterpret_cast<const std::int8_t*>(rows.values);
    for (Index slot = 0; slot < count; ++slot)
      write(to, slot, keys + slot * dim, values + slot * value_dim);
    return;
  }
  const Type number = type == CacheType::f32 ? Type::f32 : Type::bf16;
  const InputRows keys{rows.keys, number, dim, count},
      values{rows.values, number, value_dim, count};
  if (number == Type::f32) {
    kernels.tiles.pack_panels(keys, dim, nullptr, reinterpret_cast<float*>(to.keys));
    kernels.tiles.pack_rows(values, value_dim, nullptr, reinterpret_cast<float*>(to.values));
  } else {
    kernels.pages.pack_bf16_keys(keys, dim, divide_up(key_columns, Index{2}),
                                 reinterpret_cast<Bf16*>(to.keys));
    kernels.pages.pack_bf16_values(values, value_dim, value_width,
                                   reinterpret_cast<Bf16*>(to.values));
  }
}

KvCache::Impl::Impl(const CacheOptions& given, const Context& context_)
    : options(checked(given)),
      context(context_),
      kernels(kernels_of(context)),
      layout(options, kernels),
      hash(given.lsh ? std::make_unique<const LshCacheHash>(*given.lsh, given.kv_heads, given.dim,
                                                            kernels)
                     : nullptr) {
  options.value_dim = layout.value_dim;
  if (options.lsh) options.lsh->rotations.reset();  // only borrowed; the copy is in `hash`
}

void KvCache::Impl::check_capacity(const Tokens& tokens, Index count) const {
  constexpr Index most = LshCacheHash::most_tokens;
  check(hash == nullptr || count <= most - tokens.count, "append: ", count, " tokens after ",
        tokens.count, ", expected at most ", most, " in a hashed cache");
}

void KvCache::Impl::place(Tokens& tokens, const AnyView* k, Index count) {
  if (hash == nullptr) return;
  const std::vector<std::uint16_t> buckets =
      k == nullptr ? hash->padding(count) : hash->buckets_of(*k);
  if (tokens.places.use_count() > 1) tokens.places = std::make_shared<LshPlaces>(*tokens.places);
  try {
    for (Index i = 0; i < count; ++i) tokens.places->add(buckets.data() + i * hash->head_rounds());
  } catch (...) {
    tokens.places->truncate(tokens.count);
    throw;
  }
}

PageHead KvCache::Impl::head(Index page, Index kv_head) const {
  std::byte* base = pages[page].memory + kv_head * layout.head_bytes;
  std::byte* values = base + layout.key_bytes;
  return {
      base, values,
      layout.scale_bytes == 0 ? nullptr : reinterpret_cast<float*>(values + layout.value_bytes)};
}

const KvCache::Impl::Tokens& KvCache::Impl::tokens_of(Sequence sequence, const char* where) const {
  const auto found = sequences.find(sequence);
  check(found != sequences.end(), where, ": there is no sequence ", sequence, " in this cache");
  return found->second;
}

KvCache::Impl::Tokens& KvCache::Impl::tokens_of(Sequence sequence, const char* where) {
  return const_cast<Tokens&>(std::as_const(*this).tokens_of(sequence, where));
}

/// As many pages as there are, up to a few megabytes: a small cache stays small, and a large one is
/// in huge pages of the system.
void KvCache::Impl::make_slab() {
  constexpr Index most_bytes = Index{8} << 20;
  const Index most = std::max<Index>(1, most_bytes / layout.page_bytes);
  const Index count = std::clamp(std::ssize(pages), Index{1}, most);
  constexpr Index behind = max_lanes * Index{sizeof(float)};  // the last scales in whole vectors
  slabs.emplace_back(checked_product({count, layout.page_bytes}) + behind);
  const Index total = std::ssize(pages) + count;
  pages.reserve(total);
  free_pages.reserve(total);  // so that giving a page back cannot fail
  for (Index i = count - 1; i >= 0; --i) {
    pages.push_back({.memory = slabs.back().data() + (count - 1 - i) * layout.page_bytes});
    free_pages.push_back(total - count + i);
  }
}

Index KvCache::Impl::make_page() {
  if (free_pages.empty()) make_slab();
  const Index at = free_pages.back();
  Page& page = pages[at];
  // Values of tokens that do not exist yet are multiplied by 0: they must be numbers.
  std::memset(page.memory, 0, to_size(layout.page_bytes));
  page.references = 1;
  page.finite = true;
  page.partial = true;
  free_pages.pop_back();
  return at;
}

void KvCache::Impl::share(const Tokens& tokens) {
  for (const Index page : tokens.pages)
    if (page != gone) ++pages[page].references;
}

void KvCache::Impl::drop(Index page) {
  if (page != gone && --pages[page].references == 0) free_pages.push_back(page);
}

Index KvCache::Impl::own_page(Tokens& tokens, Index tile_index) {
  if (tile_index == std::ssize(tokens.pages)) {
    tokens.pages.reserve(tile_index + 1);
    tokens.pages.push_back(make_page());
    return tokens.pages[tile_index];
  }
  const Index old = tokens.pages[tile_index];
  if (pages[old].references == 1) return old;
  const Index copy = make_page();
  std::memcpy(pages[copy].memory, pages[old].memory, to_size(layout.page_bytes));
  pages[copy].finite = pages[old].finite;
  pages[copy].partial = pages[old].partial;
  drop(old);
  return tokens.pages[tile_index] = copy;
}

void KvCache::Impl::write_token(Index page, Index kv_head, Index slot, const float* key,
                                const float* value) {
  const PageHead to = head(page, kv_head);
  bool finite = true;
  for (Index c = 0; c < layout.value_dim; ++c) finite &= std::isfinite(value[c]);
  if (options.type == CacheType::f32) {
    layout.write_row(to, slot, key, value);
  } else if (options.type == CacheType::bf16) {
    Bf16 keys[max_dim], values[max_dim];
    kernels.vectors.store(key, layout.dim, Type::bf16, keys);
    kernels.vectors.store(value, layout.value_dim, Type::bf16, values);
    // What is finite may round to infinity.
    for (Index c = 0; c < layout.value_dim; ++c)
      finite &= std::isfinite(static_cast<float>(values[c]));
    layout.write_row(to, slot, keys, values);
  } else {
    std::int8_t keys[max_dim], values[max_dim];
    to.scales[slot] = quantize(key, layout.dim, keys);
    to.scales[tile + slot] = quantize(value, layout.value_dim, values);
    layout.write_row(to, slot, keys, values);
  }
  if (!finite) pages[page].finite = false;
}

void KvCache::Impl::make_full(Index page, std::byte* scratch) {
  const PageHead rows{scratch, scratch + layout.key_bytes, nullptr};
  for (Index kv_head = 0; kv_head < options.kv_heads; ++kv_head) {
    const PageHead to = head(page, kv_head);
    std::memcpy(scratch, to.keys, to_size(head_scratch_bytes()));
    layout.arrange(kernels, rows, tile, layout.dim, to);
  }
  pages[page].partial = false;
}

void KvCache::Impl::make_partial(Index page, Index count, std::byte* scratch) {
  const PageHead full{scratch, scratch + layout.key_bytes, nullptr};
  const auto read_rows = [&]<class T>(const PageHead& to, T*) {
    T key[max_dim], value[max_dim];
    for (Index slot = 0; slot < count; ++slot) {
      layout.read(full, slot, key, value);
      layout.write_row(to, slot, key, value);
    }
  };
  for (Index kv_head = 0; kv_head < options.kv_heads; ++kv_head) {
    const PageHead to = head(page, kv_head);
    std::memcpy(scratch, to.keys, to_size(head_scratch_bytes()));
    std::memset(to.keys, 0, to_size(head_scratch_bytes()));
    switch (options.type) {
      case CacheType::f32:
        read_rows(to, static_cast<float*>(nullptr));
        break;
      case CacheType::bf16:
        read_rows(to, static_cast<Bf16*>(nullptr));
        break;
      case CacheType::int8:
        read_rows(to, static_cast<std::int8_t*>(nullptr));
    }
  }
  pages[page].partial = true;
}

void KvCache::Impl::release_pages(Tokens& tokens, Index oldest_query) {
  if (!options.window) return;
  const Index first_kept = (oldest_query + 1 - *options.window) / tile;
  for (Index t = divide_up(options.pinned, tile); t < first_kept; ++t) {
    Index& page = tokens.pages[t];
    drop(page);
    page = gone;
  }
}

}  // namespace rapt
