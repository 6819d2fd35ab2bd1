#include "rapt/context.h"

namespace rapt {

std::string version() { return RAPT_VERSION; }

}  // namespace rapt
