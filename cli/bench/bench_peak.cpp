#include <memory>

#include "cli/commands.h"
#include "cli/console/options.h"
#include "cli/console/output.h"
#include "rapt/peak.h"

namespace rapt::cli {
namespace {

struct PeakOptions {
  std::optional<Index> threads = {};
  std::optional<std::string> isa = {};
  bool json = false;
};

void run(const PeakOptions& options) {
  const Context context(options.threads, options.isa);
  progress("measuring the peak");
  const Peak peak = measure_peak(0.6, context);
  end_progress();
  const std::optional<std::string> no_amx = why_no_amx();
  if (options.json) {
    print({{"isa", context.isa()},
           {"threads", context.threads()},
           {"fma_gflops", peak.fma_gflops},
           {"bf16_gflops", peak.bf16_gflops},
           {"no_amx", no_amx ? Json(*no_amx) : Json()},
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
    fmt::print("bf16 products     widened to f32; {}\n", no_amx.value_or("ask for --isa AMX"));
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
