#pragma once

#include <algorithm>

#include "kernels/kernels.h"
#include "rapt/kv_cache.h"

namespace rapt {
using namespace detail;

/// One head of one page.
struct PageHead {
  std::byte* keys;
  std::byte* values;
  float* scales;  // [2][64]: keys, values; null unless int8
};

/// Where the parts of a page are: for each head keys and values, and for int8 the scales of both.
/// In a partial page a key and a value are each a row; in a full one they are panels and rows of
/// f32 or words of two bf16 or four int8, as the products of whole tiles read them.
struct PageLayout {
  PageLayout(const CacheOptions& options, const Kernels& kernels);

  CacheType type;
  Index dim, value_dim, width;  // width: value_dim in whole vectors
  Index value_width;            // of a stored row of values, no less
  Index panel;
  Index number_bytes, in_word;                // numbers of a 32-bit word
  Index key_bytes, value_bytes, scale_bytes;  // of one head
  Index head_bytes, page_bytes;

  /// One token of a head of a full page, in words of bf16 or int8.
  template <class T>
  void write(const PageHead& to, Index slot, const T* key, const T* value) const;
  /// Writes a row of a partial page.
  template <class T>
  void write_row(const PageHead& to, Index slot, const T* key, const T* value) const {
    std::copy_n(key, dim, reinterpret_cast<T*>(to.keys) + slot * dim);
    std::copy_n(value, value_dim, reinterpret_cast<T*>(to.values) + slot * value_dim);
  }
  /// A token of a full page.
  void read(const PageHead& from, Index slot, float* key, float* value) const;
  template <class T>
  void read(const PageHead& from, Index slot, T* key, T* value) const;
  /// The first `count` rows of a partial page in the layout of a full one, and zeros; bf16 keys of
  /// `key_columns` columns, dim or more. The scales stay where they are.
  void arrange(const Kernels& kernels, const PageHead& rows, Index count, Index key_columns,
               const PageHead& to) const;

  /// Tokens of a partial page.
  StoredRows key_rows(const PageHead& head, Index slot, Index count) const {
    return {key_row(head, slot), row_type(), dim, count,
            head.scales == nullptr ? nullptr : head.scales + slot};
  }
  StoredRows value_rows(const PageHead& head, Index slot, Index count) const {
    return {value_row(head, slot), row_type(), value_dim, count,
            head.scales == nullptr ? nullptr : head.scales + tile + slot};
  }
  const std::byte* key_row(const PageHead& head, Index slot) const {
    return head.keys + slot * dim * number_bytes;
  }
  const std::byte* value_row(const PageHead& head, Index slot) const {
    return head.values + slot * value_dim * number_bytes;
  }
  Type row_type() const { return type == CacheType::bf16 ? Type::bf16 : Type::f32; }
};

/// 64 tokens of all heads.
struct Page {
  std::byte* memory = nullptr;
  Index references = 0;  // of sequences
  bool finite = true;    // no NaN or infinity was ever written
  bool partial = true;   // tokens are in rows: unless it is full, in hashed caches always
};

}  // namespace rapt
