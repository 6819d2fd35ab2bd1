#include <algorithm>
#include <memory>

#include "cli/bench/bench_case.h"
#include "cli/bench/bench_report.h"
#include "cli/bench/benched_attention.h"
#include "cli/commands.h"
#include "cli/console/output.h"

namespace rapt::cli {
namespace {

struct AttentionBenchOptions : BenchOptions {
  Case c;
  std::vector<Index> tokens;
  std::vector<std::string> only;
  bool described = false;  // a case was given; otherwise the standard ones run
  bool forward = false;
  bool backward = false;
};

/// What the flags ask for, or `usual` if there are none.
std::vector<Pass> wanted(const AttentionBenchOptions& options, const std::vector<Pass>& usual) {
  if (!options.forward && !options.backward) return usual;
  std::vector<Pass> passes;
  if (options.forward) passes.push_back(Pass::forward);
  if (options.backward) passes.push_back(Pass::backward);
  return passes;
}

std::vector<BenchCase> described_cases(const AttentionBenchOptions& options) {
  std::vector<BenchCase> cases;
  for (const Index tokens : options.tokens.empty() ? std::vector<Index>{4096} : options.tokens) {
    cases.push_back({options.c, wanted(options, {Pass::forward})});
    cases.back().c.tokens = tokens;
    cases.back().c.name = "custom";
  }
  return cases;
}

std::vector<BenchCase> cases_of(const AttentionBenchOptions& options) {
  if (options.described) return described_cases(options);
  std::vector<BenchCase> cases;
  for (const BenchCase& standard : standard_cases()) {
    const bool named = std::count(options.only.begin(), options.only.end(), standard.c.name) > 0;
    if (!options.only.empty() && !named) continue;
    Case c = standard.c;
    c.dtype = options.c.dtype;
    cases.push_back({c, wanted(options, standard.passes)});
  }
  return cases;
}

void print_attention_header() {
  fmt::print("{:<20}{:<30}{:>9}{:>6}{:>5}{:>4}  {:<9}{:>10}{:>9}{:>9}{:>7}{:>10}\n", "case",
             "pattern", "tokens", "heads", "dim", "thr", "pass", "time ms", "GFLOP/s", "of peak",
             "x f32", "extra");
}

void print_attention_row(const Json& row) {
  const Json& extra = row["extra_bytes"];
  const Json& times_f32 = row["times_f32"];
  fmt::print("{:<20}{:<30}{:>9}{:>6}{:>5}{:>4}  {:<9}{:>10.3f}{:>9.1f}{:>9.3f}{:>7}{:>10}\n",
             row["case"].get<std::string>(), row["pattern"].get<std::string>(),
             row["tokens"].get<Index>(), row["heads"].get<Index>(), row["dim"].get<Index>(),
             row["threads"].get<Index>(), row["pass"].get<std::string>(),
             row["time_ms"].get<double>(), row["gflops"].get<double>(),
             row["fraction_of_peak"].get<double>(),
             times_f32.is_null() ? "" : fmt::format("{:.2f}", times_f32.get<double>()),
             extra.is_null() ? "?" : bytes_text(extra.get<Index>()));
}

struct Job {
  Case c;
  Context context;
  Pass pass;
  std::optional<Index> extra_bytes = {};

  std::string text() const {
    return fmt::format("{}, {}, {} thread{}", c.name,
                       pass == Pass::forward ? "forward" : "backward", context.threads(),
                       context.threads() == 1 ? "" : "s");
  }
};

std::vector<Job> jobs_of(const AttentionBenchOptions& options) {
  std::vector<Job> jobs;
  for (const BenchCase& bench_case : cases_of(options))
    for (const std::optional<Index> threads : options.thread_counts())
      for (const Pass pass : bench_case.passes)
        jobs.push_back({bench_case.c, Context(threads, options.isa), pass});
  return jobs;
}

void run(const AttentionBenchOptions& options) {
  std::vector<Job> jobs = jobs_of(options);
  // Memory first: its processes branch off this one, which has not computed anything yet.
  for (Job& job : jobs) {
    progress(fmt::format("measuring memory of {}", job.text()));
    job.extra_bytes = BenchedAttention::extra_bytes(job.c, job.context, job.pass);
  }
  BenchReport report(options, print_attention_header, print_attention_row);
  for (const Job& job : jobs) {
    progress(fmt::format("measuring time of {}", job.text()));
    BenchedAttention bench(job.c, job.context);
    report.add(bench.measure(job.pass, options.repeats, job.extra_bytes));
  }
  end_progress();
  report.finish();
}

std::vector<std::string> standard_names() {
  std::vector<std::string> names;
  for (const BenchCase& standard : standard_cases()) names.push_back(standard.c.name);
  return names;
}

}  // namespace

void add_bench_attention(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "attention", "Time attention: one case described by options, or the standard cases");
  const auto options = std::make_shared<AttentionBenchOptions>();
  command->add_option("--tokens", options->tokens, "Number of keys, one or several")
      ->check(whole_number(1));
  add_case_options(*command, options->c);
  const auto described = command->get_options();
  CLI::Option* only =
      command->add_option("--case", options->only, "Only these of the standard cases")
          ->check(CLI::IsMember(standard_names()));
  command->add_flag("--forward", options->forward, "The forward pass");
  command->add_flag("--backward", options->backward, "The backward pass (both: give both flags)");
  add_bench_options(*command, *options);
  command->footer(
      "GFLOP/s counts the pairs the pattern allows: 4 * pairs * dim * heads forward, 10 * ... "
      "backward.\n"
      "The peak is measured before and after every run, with the same threads: of f32\n"
      "multiply-adds, or of bf16 products where the operands are multiplied so.\n"
      "x f32: how many times faster than the same case in f32, run in turn.\n"
      "Extra is resident memory of a first call at its highest, beyond operands and results.");
  command->callback([options, described, only, command] {
    for (const CLI::Option* option : described)
      options->described |= option->count() > 0 && option != command->get_help_ptr() &&
                            option->get_name() != "--dtype";
    if (options->described && only->count() > 0)
      throw CLI::ValidationError("--case",
                                 "names a standard case and excludes options that describe one");
    run(*options);
  });
}

}  // namespace rapt::cli
