#pragma once

#include <map>
#include <vector>

#include "rapt/model.h"

namespace rapt {

struct ModelCache::Body {
  Options options;
  std::vector<KvCache> layers;  // of the decoder; all have the same sequences
  /// What the encoder made of a sequence's sources, [tokens, width].
  std::map<Index, std::shared_ptr<const Tensor>> sources;

  /// Who sees whom once the window forgets.
  Pattern pattern(const Pattern& of_layer) const {
    if (options.window == 0) return of_layer;
    return of_layer & (rapt::window(options.window - 1, 0) | keys(options.pinned));
  }
};

}  // namespace rapt
