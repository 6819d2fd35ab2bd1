#include "cli/commands.h"

namespace rapt::cli {

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure this CPU, or attention and layers on it");
  bench->require_subcommand(1);
  add_bench_peak(*bench);
  add_bench_attention(*bench);
  add_bench_decode(*bench);
  add_bench_rope(*bench);
  add_bench_lsh(*bench);
  add_bench_gemm(*bench);
  add_bench_ranks(*bench);
}

}  // namespace rapt::cli
