#pragma once

#include <ctime>

namespace rapt::test {

/// Seconds that this process has computed for: a busy machine does not lengthen them much.
inline double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace rapt::test
