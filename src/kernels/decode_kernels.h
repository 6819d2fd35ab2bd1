#pragma once

#include <cstddef>

#include "base/enum_array.h"
#include "kernels/tile.h"
#include "rapt/cache_type.h"

namespace rapt::detail {

/// Rows of keys or values of one key head, in the caller's memory or in a partial page of a cache.
/// With scales they are int8, and row i is itself times scales[i]; scales are read in whole
/// vectors.
struct StoredRows {
  const void* data;
  Type type;
  Index stride, count;
  const float* scales = nullptr;  // null: numbers of `type`
  bool prefetch = false;          // whether to prefetch the rows behind these
  Index chain = tile;             // values of one f32 sum
};

/// Keys or values of one head of a full page: f32 as panels or rows, bf16 and int8 as words.
struct StoredPage {
  const void* numbers;
  const float* scales;  // [64] of int8, else null
  Index width;          // of a stored row of values
  Index slots;          // the first ones that count, of keys in whole vectors
  const void* next;     // what is read after this page, to be prefetched; null: nothing
};

/// A full page of some neighbouring heads of a cache, which all their query rows see.
struct FullPage {
  static constexpr Index max_rows = 16;
  const std::byte* head;  // the first: its keys
  Index heads, head_bytes;
  Index value_offset, scale_offset;  // from a head's keys, in bytes; scale_offset 0: no scales
  Index dim, value_width;            // of a key, and of a stored row of values
  Index rows;                        // query rows of a head, at most max_rows
  const float* queries;              // [heads][rows][query_stride(dim)]
  const std::byte* int8_queries;     // the same as pack_int8_queries packs them, if multiplies_int8
  SoftmaxTile* states;               // [heads]
  const std::byte* next;             // what is read after the last head
};

/// One query of each head over at most 64 keys. Steps are bytes from one head to the next, of
/// scales as of their rows.
struct ShortContextHeads {
  const void* q;
  Type q_type;
  Index q_step;
  StoredRows keys, values;  // of the first key head
  Index key_step, value_step;
  void* out;
  Type out_type;
  Index out_step;
  Index heads, group;  // key heads, and query heads of each
  Index dim, value_dim;
  double factor;  // of q · k, in units of log2
  float* max;     // [heads * group] the denominator of a row is sum * 2^max; null: not wanted
  double* sum;
};

/// Bytes of a query row in fixed point: 16 for a header, then for every four columns their lowest
/// bytes, their middle and their highest ones, and four of padding.
constexpr Index int8_query_bytes(Index dim) { return 16 + (dim + 15) / 16 * 64; }

/// A few query rows over keys and values where they are stored: scores[r][slot] = queries[r] · key,
/// and out[r][width] += probabilities[r] · values.
struct DecodeKernels {
  /// Queries are [rows][query_stride(dim)], zeros in the end; rows of scores are 64 apart.
  static constexpr Index query_stride(Index dim) { return (dim + 3) / 4 * 4; }

  /// In rows. With scales the probabilities are multiplied by them, in place.
  struct Rows {
    void (*scores)(const float* queries, Index rows, const StoredRows& keys, Index dim,
                   float* scores) noexcept;
    void (*accumulate_values)(float* probabilities, Index rows, const StoredRows& values, Index dim,
                              float* out, Index width) noexcept;
  };
  Rows rows;

  /// In full pages; out: [rows][width], in whole vectors. `attend` takes a whole page at once,
  /// where logits are products and nothing more.
  struct Page {
    void (*scores)(const float* queries, Index rows, const StoredPage& keys, Index dim,
                   float* scores) noexcept;
    void (*accumulate_values)(float* probabilities, Index rows, const StoredPage& values,
                              Index width, float* out) noexcept;
    void (*attend)(const FullPage& page) noexcept;
  };
  EnumArray<CacheType, Page> page;

  /// One query, and rows of `dim` numbers at any addresses. scores: [count]; out: [dim].
  struct Scattered {
    void (*scores)(const float* query, const void* const* rows, Index count, Index dim,
                   float* scores) noexcept;
    void (*accumulate_values)(const float* weights, const void* const* rows, Index count, Index dim,
                              float* out) noexcept;
  };
  EnumArray<CacheType, Scattered> scattered;

  /// All of it, for calls too short to plan.
  void (*attend_short_context)(const ShortContextHeads& heads) noexcept;

  /// Full pages of int8 multiplied as integers, for CPUs with AVX512-VNNI.
  struct Int8Products {
    /// Into rows of int8_query_bytes(dim).
    void (*pack_queries)(const float* queries, Index rows, Index dim, std::byte* out) noexcept;
    void (*attend)(const FullPage& page) noexcept;
  };
  /// Whether page[CacheType::int8].attend does so. It then reads packed queries.
  bool multiplies_int8 = false;
  void (*pack_int8_queries)(const float* queries, Index rows, Index dim,
                            std::byte* out) noexcept = nullptr;
  void use(const Int8Products& int8) {
    page[CacheType::int8].attend = int8.attend;
    pack_int8_queries = int8.pack_queries;
    multiplies_int8 = true;
  }
};

}  // namespace rapt::detail
