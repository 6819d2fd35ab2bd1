#pragma once

#include <CLI/CLI.hpp>

namespace rapt::cli {

// Each adds one command with its options; the command runs after parsing.
void add_plan(CLI::App& app);
void add_bench(CLI::App& app);
void add_bench_peak(CLI::App& bench);
void add_bench_attention(CLI::App& bench);
void add_bench_decode(CLI::App& bench);
void add_bench_rope(CLI::App& bench);
void add_bench_lsh(CLI::App& bench);
void add_bench_gemm(CLI::App& bench);
void add_bench_ranks(CLI::App& bench);
void add_explain(CLI::App& app);
void add_inspect(CLI::App& app);
void add_heads(CLI::App& app);
void add_train(CLI::App& app);
void add_generate(CLI::App& app);
void add_embed(CLI::App& app);
void add_convert(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_lab(CLI::App& app);

/// What `rapt --version` prints.
void print_version(bool json);

}  // namespace rapt::cli
