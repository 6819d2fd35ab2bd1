#pragma once

#include "formats/config/json.h"
#include "rapt/train.h"

namespace rapt {

/// The sections model, data, tokenizer and train of an object.
RunConfig run_config_from(const Json& object, const std::string& source);
Json to_json(const RunConfig& config);

}  // namespace rapt
