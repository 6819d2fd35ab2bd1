#include "attention/decode/stored_keys.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "attention/cache/cached_keys.h"
#include "attention/decode/decode.h"
#include "attention/forward/nonfinite_products.h"
#include "base/indexed_vector.h"

namespace rapt::detail {
namespace {

/// Calls over less than this may find everything in the caches.
constexpr Index cached_bytes = Index{8} << 20;
/// Values in the caller's memory that are summed in one chain.
constexpr Index values_per_chain = 32;

/// The softmax leaves scores outside a clip as they were, and products of whole tiles read them.
/// Its clips are those of strips of rows of all heads, which need not begin where a head begins:
/// only what a row sees itself is sure to be inside.
void clear_hidden(const QueryRows& rows, float* probabilities) {
  if (rows.mask.whole()) return;
  for (Index r = 0; r < rows.count; ++r) {
    const std::uint64_t word = rows.mask.words()[r];
    float* row = probabilities + r * tile;
    std::fill(row, row + std::countr_zero(word), 0.0f);
    std::fill(row + tile - std::countl_zero(word), row + tile, 0.0f);
  }
}

/// Calls with_run(first, count) for each run of set bits.
template <class WithRun>
void for_each_run(std::uint64_t bits, const WithRun& with_run) {
  while (bits != 0) {
    const int first = std::countr_zero(bits);
    const int count = std::countr_one(bits >> first);
    with_run(Index{first}, Index{count});
    bits &= count == tile ? 0 : ~(((std::uint64_t{1} << count) - 1) << first);
  }
}

}  // namespace

bool multiplies_int8(CacheType type, const Kernels& kernels) {
  return type == CacheType::int8 && kernels.decode.multiplies_int8;
}

const Page& PageKeys::page(Index key_tile) const {
  const Index index = tokens_.pages[key_tile];
  return cache_.pages[index];
}

PageHead PageKeys::head(Index kv_head, Index key_tile) const {
  return cache_.head(tokens_.pages[key_tile], kv_head);
}

void PageKeys::scores(const KeyTilePlace& place, const QueryRows& rows, const float* queries,
                      float* scores) const {
  const PageLayout& layout = cache_.layout;
  const PageHead head = this->head(place.kv_head, place.key_tile);
  if (page(place.key_tile).partial)
    return kernels_.rows.scores(queries, rows.count, layout.key_rows(head, 0, rows.seen),
                                layout.dim, scores);
  const void* next = rows.slots == tile ? head.values : nullptr;
  page_kernels_.scores(queries, rows.count, {head.keys, head.scales, tile, rows.slots, next},
                       layout.dim, scores);
}

void PageKeys::accumulate_values(const KeyTilePlace& place, const QueryRows& rows,
                                 float* probabilities, float* out) const {
  const PageLayout& layout = cache_.layout;
  const Page& page = this->page(place.key_tile);
  clear_hidden(rows, probabilities);
  if (!rows.mask.whole() && !page.finite)
    return accumulate_nonfinite_values(place, rows, probabilities, out);
  const PageHead head = this->head(place.kv_head, place.key_tile);
  if (page.partial)
    return kernels_.rows.accumulate_values(probabilities, rows.count,
                                           layout.value_rows(head, 0, rows.seen), layout.value_dim,
                                           out, layout.width);
  const float* scales = head.scales == nullptr ? nullptr : head.scales + tile;
  const void* next =
      rows.slots == tile ? this->head(place.next_head, place.next_tile).keys : nullptr;
  page_kernels_.accumulate_values(probabilities, rows.count,
                                  {head.values, scales, layout.value_width, rows.seen, next},
                                  layout.width, out);
}

bool PageKeys::attend(const KeyTilePlace& place, Index heads, Index rows,
                      const PackedQueries& queries, SoftmaxTile* states) const {
  if (page(place.key_tile).partial) return false;
  const PageLayout& layout = cache_.layout;
  const PageHead first = head(place.kv_head, place.key_tile);
  const Index scales = layout.scale_bytes == 0 ? 0 : layout.key_bytes + layout.value_bytes;
  page_kernels_.attend({.head = first.keys,
                        .heads = heads,
                        .head_bytes = layout.head_bytes,
                        .value_offset = layout.key_bytes,
                        .scale_offset = scales,
                        .dim = layout.dim,
                        .value_width = layout.value_width,
                        .rows = rows,
                        .queries = queries.f32,
                        .int8_queries = queries.int8,
                        .states = states,
                        .next = head(place.next_head, place.next_tile).keys});
  return true;
}

/// The general product works on strips of rows, more than there may be.
void PageKeys::accumulate_nonfinite_values(const KeyTilePlace& place, const QueryRows& rows,
                                           const float* probabilities, float* out) const {
  const PageLayout& layout = cache_.layout;
  Buffer<float> scratch(tile * (layout.dim + layout.width));
  Buffer<float> strips(round_up(rows.count, strip) * layout.width);
  const PackedTile<float> packed =
      CachedKeys<float>(cache_, tokens_).get(0, place.kv_head, place.key_tile, scratch.data());
  std::copy_n(out, rows.count * layout.width, strips.data());
  detail::accumulate_values(cache_.kernels.tiles, probabilities,
                            {packed.values, layout.width, false}, rows.mask, rows.count,
                            strips.data());
  std::copy_n(strips.data(), rows.count * layout.width, out);
}

/// Prefetching what is in the caches doubled the time of 16 heads of 65 keys, and took a third more
/// of that of 512; without prefetching 8,192 keys from memory take twice the time.
RowKeys::RowKeys(const Call& call, Index item)
    : call_(call),
      item_(item),
      prefetch_(call.batch * call.kv_heads * call.key_tiles() * tile_bytes() > cached_bytes) {}

StoredRows RowKeys::rows(const AnyView& operand, const KeyTilePlace& place, Index first,
                         Index count) const {
  return {.data = operand.row(item_, place.kv_head, place.key_tile * tile + first),
          .type = operand.type(),
          .stride = operand.stride(2),
          .count = count,
          .prefetch = prefetch_,
          .chain = values_per_chain};
}

void RowKeys::scores(const KeyTilePlace& place, const QueryRows& rows, const float* queries,
                     float* scores) const {
  const Index count = std::min(rows.seen, call_.tile_keys(place.key_tile));
  call_.kernels.decode.rows.scores(queries, rows.count, this->rows(call_.k, place, 0, count),
                                   call_.dim, scores);
}

/// A value that a row does not see is never multiplied: the runs of keys that all rows see go
/// together, the others row by row.
void RowKeys::accumulate_values(const KeyTilePlace& place, const QueryRows& rows,
                                float* probabilities, float* out) const {
  const Index width = decode_width(call_);
  const auto add = [&](Index row, Index row_count, Index first, Index count) {
    call_.kernels.decode.rows.accumulate_values(probabilities + row * tile + first, row_count,
                                                this->rows(call_.v, place, first, count),
                                                call_.value_dim, out + row * width, width);
  };
  if (rows.mask.whole()) return add(0, rows.count, 0, tile);
  const std::span<const std::uint64_t> words(rows.mask.words(), to_size(rows.count));
  std::uint64_t all = ~std::uint64_t{0};
  for (const std::uint64_t word : words) all &= word;
  for_each_run(all, [&](Index first, Index count) { add(0, rows.count, first, count); });
  for (Index r = 0; r < rows.count; ++r)
    for_each_run(element(words, r) & ~all,
                 [&](Index first, Index count) { add(r, 1, first, count); });
}

bool RowKeys::heads_are_adjacent() const {
  return std::abs(call_.k.stride(1)) < std::abs(call_.k.stride(2));
}

Index RowKeys::tile_bytes() const {
  const auto bytes = [](const AnyView& view) { return static_cast<Index>(size_of(view.type())); };
  return tile * (call_.dim * bytes(call_.k) + call_.value_dim * bytes(call_.v));
}

}  // namespace rapt::detail
