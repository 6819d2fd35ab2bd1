#include "cli/commands.h"
#include "cli/console/output.h"
#include "rapt/context.h"

namespace rapt::cli {

namespace {

#if defined(__clang__)
constexpr const char* compiler = __VERSION__;
#else
constexpr const char* compiler = "GCC " __VERSION__;
#endif

}  // namespace

void print_version(bool json) {
  const Context context;
  if (json) {
    print({{"version", version()},
           {"isa", context.isa()},
           {"isas", supported_isas()},
           {"threads", context.threads()},
           {"usable_cpus", usable_cpus()},
           {"compiler", compiler}});
    return;
  }
  fmt::print(
      "rapt {}\ninstruction set  {} (this CPU runs {})\nthreads          {}, {} usable CPUs\n",
      version(), context.isa(), fmt::join(supported_isas(), ", "), context.threads(),
      usable_cpus());
}

}  // namespace rapt::cli
