#include "cli/commands.h"
#include "cli/output.h"
#include "rapt/context.h"

namespace rapt::cli {

void print_version(bool json) {
  const Context context;
  if (json) {
    print({{"version", version()},
           {"isa", context.isa()},
           {"isas", supported_isas()},
           {"threads", context.threads()},
           {"usable_cpus", usable_cpus()},
           {"compiler", __VERSION__}});
    return;
  }
  fmt::print("rapt {}\n{} of {}; {} of {} CPUs\n", version(), context.isa(),
             fmt::join(supported_isas(), ", "), context.threads(), usable_cpus());
}

}  // namespace rapt::cli
