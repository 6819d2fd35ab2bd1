#pragma once

#include "rapt/models/generate.h"

namespace rapt::detail {

/// The most likely text after one prompt, by beam search.
Generated search_beams(const Transformer& model, const std::vector<std::int32_t>& prompt,
                       const GenerateOptions& options, const GenerateEvents& events,
                       const Context& context);

}  // namespace rapt::detail
