#pragma once

#include "formats/config/fields.h"
#include "rapt/models/transformer.h"

namespace rapt::detail {

/// The config of an object; keys that it lacks are as in `otherwise`. Throws std::runtime_error
/// naming the key, and std::invalid_argument if the whole makes no sense.
ModelConfig model_config_from(Fields fields, const ModelConfig& otherwise = {});
Json to_json(const ModelConfig& config);

}  // namespace rapt::detail
