#pragma once

#include "formats/config/json.h"
#include "rapt/models/train.h"

namespace rapt::detail {

/// Throws std::invalid_argument if an option is out of its range.
void check_train_options(const TrainOptions& options);

/// The sections model, data, tokenizer and train of an object.
RunConfig run_config_from(const Json& object, const std::string& source);
Json to_json(const RunConfig& config);

}  // namespace rapt::detail
