#include "cli/bench/bench_options.h"

#include "cli/console/options.h"
#include "cli/console/output.h"

namespace rapt::cli {

void add_bench_options(CLI::App& command, BenchOptions& options) {
  add_threads_option(command, options.threads);
  add_isa_option(command, options.isa);
  command.add_option("--repeat", options.repeats, "Runs, of which the median counts")
      ->check(whole_number(1))
      ->capture_default_str();
  command.add_flag("--json", options.json,
                   "Print JSON: an object for one result, an array for several");
}

}  // namespace rapt::cli
