#include "attention/decode/stored_keys.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "attention/cache/cached_keys.h"
#include "attention/decode/decode.h"
#include "attention/forward/nonfinite_products.h"
#include "kernels/cpu_features.h"
#include "kernels/int8_kernels.h"

namespace rapt {
namespace {

/// What a call may find in the caches, if it was there before.
constexpr Index near_bytes = Index{8} << 20;

/// Absorb leaves what lies outside a clip as it was; products of whole tiles read it all.
void clear_hidden(const ThinRows& rows, float* probabilities) {
  if (rows.mask.whole()) return;
  for (Index r = 0; r < rows.count; ++r) {
    const Clip clip = rows.mask.clips()[r / strip];
    float* row = probabilities + r * tile;
    std::fill(row, row + clip.begin, 0.0f);
    std::fill(row + clip.end, row + tile, 0.0f);
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

const ByteKernels* byte_kernels_for(CacheType type, const Kernels& kernels) {
  return type == CacheType::int8 && has_avx512_vnni() ? kernels.bytes : nullptr;
}

const Page& CachedThinKeys::page(Index key_tile) const {
  const Index index = tokens_.pages[static_cast<std::size_t>(key_tile)];
  return cache_.pages[static_cast<std::size_t>(index)];
}

const Kernels::Thin& CachedThinKeys::kernels_for(const Page& page) const {
  const auto type = static_cast<std::size_t>(cache_.options.type);
  return page.open ? cache_.kernels.open[type] : cache_.kernels.thin[type];
}

PageHead CachedThinKeys::head(Index kv_head, Index key_tile) const {
  return cache_.head(tokens_.pages[static_cast<std::size_t>(key_tile)], kv_head);
}

void CachedThinKeys::scores(const ThinPlace& place, const ThinRows& rows, const float* queries,
                            float* scores) const {
  const PageHead head = this->head(place.kv_head, place.key_tile);
  const Page& page = this->page(place.key_tile);
  const Index slots = page.open ? rows.seen : rows.slots;
  const void* ahead = rows.slots == tile ? head.values : nullptr;
  kernels_for(page).scores(queries, rows.count, {head.keys, head.scales, tile, slots, ahead},
                           cache_.layout.dim, scores);
}

void CachedThinKeys::gather(const ThinPlace& place, const ThinRows& rows, float* probabilities,
                            float* out) const {
  const PageLayout& layout = cache_.layout;
  const Page& page = this->page(place.key_tile);
  if (rows.mask.whole() || page.finite) {
    clear_hidden(rows, probabilities);
    const PageHead head = this->head(place.kv_head, place.key_tile);
    const float* scales = head.scales == nullptr ? nullptr : head.scales + tile;
    const void* ahead =
        rows.slots == tile ? this->head(place.next_head, place.next_tile).keys : nullptr;
    const Index width = page.open ? layout.value_dim : layout.value_width;
    kernels_for(page).gather(probabilities, rows.count,
                             {head.values, scales, width, rows.seen, ahead}, layout.width, out);
    return;
  }
  gather_carefully(place, rows, probabilities, out);
}

bool CachedThinKeys::pass(const ThinPlace& place, Index heads, Index rows,
                          const ThinQueries& queries, SoftmaxTile* states) const {
  if (page(place.key_tile).open) return false;
  const PageLayout& layout = cache_.layout;
  const PageHead first = head(place.kv_head, place.key_tile);
  const Index scales = layout.scale_bytes == 0 ? 0 : layout.key_bytes + layout.value_bytes;
  const ThinPass pass{first.keys,         heads,  layout.head_bytes,
                      layout.key_bytes,   scales, layout.dim,
                      layout.value_width, rows,   queries.numbers,
                      queries.bytes,      states, head(place.next_head, place.next_tile).keys};
  if (queries.bytes != nullptr) {
    cache_.kernels.bytes->pass(pass);
  } else {
    cache_.kernels.thin_pass[static_cast<std::size_t>(layout.type)](pass);
  }
  return true;
}

/// The general product works on strips of rows, more than there may be.
void CachedThinKeys::gather_carefully(const ThinPlace& place, const ThinRows& rows,
                                      const float* probabilities, float* out) const {
  const PageLayout& layout = cache_.layout;
  Buffer<float> room(tile * (layout.dim + layout.width));
  Buffer<float> strips(round_up(rows.count, strip) * layout.width);
  const PackedTile packed =
      CachedKeys(cache_, tokens_).get(0, place.kv_head, place.key_tile, room.data());
  std::copy_n(out, rows.count * layout.width, strips.data());
  rapt::gather(cache_.kernels, probabilities, {packed.values, layout.width, false}, rows.mask,
               rows.count, strips.data());
  std::copy_n(strips.data(), rows.count * layout.width, out);
}

/// Asking for what is near already doubled the time of 16 heads of 65 keys, and took a third more
/// of that of 512; 8,192 from memory take twice the time without.
OperandThinKeys::OperandThinKeys(const Call& call, Index item)
    : call_(call),
      item_(item),
      ahead_(call.batch * call.kv_heads * call.key_tiles() * tile_bytes() > near_bytes) {}

InputRows OperandThinKeys::rows(const AnyView& operand, const ThinPlace& place, Index first,
                                Index count) const {
  InputRows some = rows_of(operand, item_, place.kv_head, place.key_tile * tile + first, count);
  some.ahead = ahead_;
  return some;
}

void OperandThinKeys::scores(const ThinPlace& place, const ThinRows& rows, const float* queries,
                             float* scores) const {
  const Index count = std::min(rows.seen, call_.tile_keys(place.key_tile));
  call_.kernels.row_scores(queries, query_stride(call_.dim), rows.count,
                           this->rows(call_.k, place, 0, count), call_.dim, scores);
}

/// A value that a row does not see is never multiplied: the runs of keys that all rows see go
/// together, the others row by row.
void OperandThinKeys::gather(const ThinPlace& place, const ThinRows& rows, float* probabilities,
                             float* out) const {
  const Index width = thin_width(call_);
  const auto add = [&](Index row, Index row_count, Index first, Index count) {
    call_.kernels.row_gather(probabilities + row * tile + first, row_count,
                             this->rows(call_.v, place, first, count), call_.value_dim,
                             out + row * width, width);
  };
  if (rows.mask.whole()) return add(0, rows.count, 0, tile);
  const std::span<const std::uint64_t> words(rows.mask.words(),
                                             static_cast<std::size_t>(rows.count));
  std::uint64_t all = ~std::uint64_t{0};
  for (const std::uint64_t word : words) all &= word;
  for_each_run(all, [&](Index first, Index count) { add(0, rows.count, first, count); });
  for (Index r = 0; r < rows.count; ++r)
    for_each_run(words[static_cast<std::size_t>(r)] & ~all,
                 [&](Index first, Index count) { add(r, 1, first, count); });
}

bool OperandThinKeys::heads_lie_together() const {
  return std::abs(call_.k.stride(1)) < std::abs(call_.k.stride(2));
}

Index OperandThinKeys::tile_bytes() const {
  const auto bytes = [](const AnyView& view) { return static_cast<Index>(size_of(view.type())); };
  return tile * (call_.dim * bytes(call_.k) + call_.value_dim * bytes(call_.v));
}

}  // namespace rapt
