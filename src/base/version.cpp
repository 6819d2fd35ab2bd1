#include "rapt/context.h"

namespace rapt {
using namespace detail;

std::string version() { return RAPT_VERSION; }

}  // namespace rapt
