#pragma once

#include "rapt/health.h"

namespace rapt::lab {

/// What the numbers say, in sentences.
std::vector<std::string> advice_on(const ModelHealth& health);

}  // namespace rapt::lab
