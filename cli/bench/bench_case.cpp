#include "cli/bench/bench_case.h"

namespace rapt::cli {

std::vector<BenchCase> standard_cases() {
  const char* longformer = "window(256, 256) | tokens({0})";
  const std::vector<Pass> forward = {Pass::forward};
  const std::vector<Pass> both = {Pass::forward, Pass::backward};
  return {
      {{.name = "full", .tokens = 4096}, forward},
      {{.name = "full-dim128", .tokens = 4096, .dim = 128}, forward},
      {{.name = "causal", .pattern = "causal", .tokens = 4096}, both},
      {{.name = "causal-short", .pattern = "causal", .tokens = 1024}, forward},
      {{.name = "longformer", .pattern = longformer, .tokens = 16384}, both},
      {{.name = "longformer-1head", .pattern = longformer, .tokens = 16384, .heads = 1}, forward},
      {{.name = "longformer-million", .pattern = longformer, .tokens = 1048576, .heads = 1},
       forward},
      {{.name = "causal-alibi", .pattern = "causal", .tokens = 4096, .bias = "alibi"}, forward},
      {{.name = "causal-softcap", .pattern = "causal", .tokens = 4096, .softcap = 30}, forward},
      {{.name = "causal-t5", .pattern = "causal", .tokens = 4096, .bias = "t5_bias"}, forward},
      {{.name = "causal-log_n", .pattern = "causal", .tokens = 4096, .scale = "log_n"}, forward},
      {{.name = "causal-stats", .pattern = "causal", .tokens = 4096, .stats = true}, forward},
  };
}

}  // namespace rapt::cli
