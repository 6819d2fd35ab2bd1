#include "attention/lsh/lsh_cache_hash.h"

#include <algorithm>

#include "attention/call.h"
#include "attention/lsh/lsh_rotations.h"
#include "base/check.h"

namespace rapt::detail {
namespace {

const Lsh& checked(const CacheLsh& o) {
  lsh(o.lsh);  // refuses what makes no sense
  check(o.lsh.keys == Lsh::Keys::shared,
        "KvCache: lsh with separate keys given, expected shared ones: where a query stands among "
        "earlier ones, a cache of keys does not know");
  check(o.tokens.value_or(1) > 0, "KvCache: lsh for ", o.tokens.value_or(1),
        " tokens given, expected 1 or more");
  check(!o.lsh.buckets.empty() || o.tokens,
        "KvCache: lsh without buckets given, expected them, or CacheLsh::tokens, the length to "
        "choose them for: they must not change while the cache grows");
  return o.lsh;
}

}  // namespace

LshCacheHash::LshCacheHash(const CacheLsh& o, Index heads, Index dim, const Kernels& kernels)
    : kernels_(kernels),
      lsh_(checked(o)),
      factors_(lsh_.buckets.empty() ? lsh_buckets(*o.tokens, lsh_.chunk) : lsh_.buckets),
      heads_(heads),
      dim_(dim) {
  bucket_count_ = lsh_bucket_count(factors_);
  check(bucket_count_ <= most_buckets, "KvCache: lsh with ", bucket_count_,
        " buckets given, expected at most ", most_buckets);
  if (o.rotations) check_memory("KvCache", "rotations", *o.rotations);
  const LshRotations rotations(lsh_, factors_, heads, dim, o.rotations);
  columns_ = rotations.columns();
  const Index padded = round_up(columns_, tile);
  panels_ = Buffer<float>(checked_product({heads, padded, dim}));
  Buffer<float> rows(columns_ * dim);
  for (Index head = 0; head < heads; ++head) {
    rotations.copy(head, rows.data());
    for (Index c = 0; c < columns_; c += tile)
      kernels.tiles.pack_panels(
          {rows.data() + c * dim, Type::f32, dim, std::min(tile, columns_ - c)}, dim, nullptr,
          panels_.data() + (head * padded + c) * dim);
  }
}

/// Up to 64 tokens as left, rotations as right operand: one token costs a strip of four, and
/// not 64.
void LshCacheHash::hash(const AnyView& k, Index head, Index first, Index count, float* scratch,
                        std::uint16_t* out) const {
  const Index padded = round_up(columns_, tile);
  float* products = scratch + tile * dim_;
  float* rotated = products + tile * tile;
  kernels_.tiles.pack_strips(rows_of(k, 0, head, first, count), dim_, nullptr, scratch);
  for (Index c = 0; c < columns_; c += tile) {
    kernels_.tiles.scores(scratch, panels_.data() + (head * padded + c) * dim_, dim_,
                          divide_up(count, strip), nullptr, products);
    for (Index i = 0; i < count; ++i)
      for (Index at = 0; at < tile; ++at) rotated[(c + at) * tile + i] = products[i * tile + at];
  }
  std::int32_t buckets[tile];
  const Index half = columns_ / lsh_.rounds;
  for (Index round = 0; round < lsh_.rounds; ++round) {
    find_buckets(kernels_, factors_, rotated + round * half * tile, count, buckets);
    for (Index i = 0; i < count; ++i)
      out[i * head_rounds() + head * lsh_.rounds + round] = static_cast<std::uint16_t>(buckets[i]);
  }
}

std::vector<std::uint16_t> LshCacheHash::buckets_of(const AnyView& k) const {
  const Index tokens = k.tokens();
  std::vector<std::uint16_t> buckets(to_size(checked_product({tokens, head_rounds()})));
  Buffer<float> scratch(tile * dim_ + tile * tile + round_up(columns_, tile) * tile);
  std::fill(scratch.begin(), scratch.end(),
            0.0f);  // columns of tokens that do not exist are looked at
  for (Index head = 0; head < heads_; ++head)
    for (Index first = 0; first < tokens; first += tile)
      hash(k, head, first, std::min(tile, tokens - first), scratch.data(),
           buckets.data() + first * head_rounds());
  return buckets;
}

std::vector<std::uint16_t> LshCacheHash::padding(Index tokens) const {
  return std::vector<std::uint16_t>(to_size(checked_product({tokens, head_rounds()})),
                                    static_cast<std::uint16_t>(bucket_count_));
}

void LshCacheHash::normalize(float* key) const {
  const auto factor = static_cast<float>(inverse_rms(key, dim_));
  for (Index c = 0; c < dim_; ++c) key[c] *= factor;
}

}  // namespace rapt::detail
