#pragma once

#include "rapt/kv_cache.h"

namespace rapt::test {

inline constexpr CacheType cache_types[] = {CacheType::f32, CacheType::bf16, CacheType::int8};

/// tensor[item, :, first .. first + count - 1, :]
inline AnyView tokens_of(const Tensor& tensor, Index item, Index first, Index count) {
  const View all = tensor.view();
  Shape shape = all.shape();
  shape[0] = 1, shape[2] = count;
  return View::unchecked(all.row(item, 0, first), shape, all.strides());
}

}  // namespace rapt::test
