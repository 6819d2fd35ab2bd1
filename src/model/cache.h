#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "rapt/model.h"

namespace rapt {

struct ModelCache::Body {
  Options options;
  std::vector<KvCache> layers;   // of the decoder; all have the same sequences
  std::vector<KvCache> sources;  // likewise, of an encoder-decoder: what each sequence is about

  /// What a sequence consists of, where angles depend on its length: keys that were turned for one
  /// length do not serve another, and the layers above have read what came of them.
  struct Text {
    std::vector<std::int32_t> ids;
    Index turned_for = 0;  // tokens
  };
  std::map<Index, Text> texts;
  bool keeps_texts = false;

  /// Who sees whom once the window forgets.
  Pattern pattern(const Pattern& of_layer) const {
    if (options.window == 0) return of_layer;
    return of_layer & (rapt::window(options.window - 1, 0) | keys(options.pinned));
  }
};

}  // namespace rapt
