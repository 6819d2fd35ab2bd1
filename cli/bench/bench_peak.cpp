#include <memory>

#include "cli/commands.h"
#include "cli/console/options.h"
#include "cli/console/output.h"
#include "rapt/machine.h"

namespace rapt::cli {
namespace {

struct PeakOptions {
  Index threads = 0;
  std::string isa;
  bool json = false;
};

void run(const PeakOptions& options) {
  const Context context(options.threads, options.isa);
  progress("measuring the peak");
  const Peak peak = measure_peak(context);
  end_progress();
  if (options.json) {
    print({{"isa", context.isa()},
           {"threads", context.threads()},
           {"fma_gflops", peak.fma_gflops},
           {"bf16_gflops", peak.bf16_gflops},
           {"no_amx", why_no_amx()},
           {"exp_gops", peak.exp_gops},
           {"read_gbytes", peak.read_gbytes}});
    return;
  }
  fmt::print("{}, {} thread{}\n", context.isa(), context.threads(),
             context.threads() == 1 ? "" : "s");
  fmt::print("f32 multiply-add  {:8.1f} GFLOP/s\n", peak.fma_gflops);
  if (peak.bf16_gflops > 0) {
    fmt::print("bf16 products     {:8.1f} GFLOP/s\n", peak.bf16_gflops);
  } else {
    fmt::print("bf16 products     widened to f32; {}\n",
               why_no_amx().empty() ? "ask for --isa AMX" : why_no_amx());
  }
  fmt::print("exp2              {:8.2f} G/s\n", peak.exp_gops);
  fmt::print("memory read       {:8.1f} GB/s\n", peak.read_gbytes);
}

}  // namespace

void add_bench_peak(CLI::App& bench) {
  CLI::App* command =
      bench.add_subcommand("peak", "Measure multiply-adds, exponentials and memory reads");
  const auto options = std::make_shared<PeakOptions>();
  add_threads_option(*command, options->threads);
  add_isa_option(*command, options->isa);
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options] { run(*options); });
}

}  // namespace rapt::cli
