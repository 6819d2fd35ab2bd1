#pragma once

#include "rapt/generate.h"

namespace rapt {

/// The likeliest text after one prompt among `beams` that are followed side by side.
Generated search_beams(const Transformer& model, const std::vector<std::int32_t>& prompt,
                       const GenerateOptions& options, const GenerateEvents& events,
                       const Context& context);

}  // namespace rapt
