#pragma once

#include "rapt/models/heads.h"

namespace rapt::detail {

/// What the numbers say, in sentences.
std::vector<std::string> advice_on(const HeadReport& report);

}  // namespace rapt::detail
