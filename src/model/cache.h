#pragma once

#include <vector>

#include "rapt/model.h"

namespace rapt {

struct ModelCache::Body {
  Options options;
  std::vector<KvCache> layers;   // of the decoder; all have the same sequences
  std::vector<KvCache> sources;  // likewise, of an encoder-decoder: what each sequence is about

  /// Who sees whom once the window forgets.
  Pattern pattern(const Pattern& of_layer) const {
    if (options.window == 0) return of_layer;
    return of_layer & (rapt::window(options.window - 1, 0) | keys(options.pinned));
  }
};

}  // namespace rapt
