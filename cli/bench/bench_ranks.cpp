#include <algorithm>
#include <cmath>
#include <memory>

#include "cli/bench/bench_report.h"
#include "cli/commands.h"
#include "cli/console/options.h"
#include "cli/console/output.h"
#include "cli/ranks/benched_ranks.h"

namespace rapt::cli {
namespace {

struct RanksBenchOptions : BenchOptions {
  RanksBenchOptions() { repeats = 5; }

  Case c;
  std::vector<std::string> only, passes = {"both"};
  std::vector<Index> ranks;
  std::string backend = "threads";
  Index threads_per_rank = 1;
  bool strict = false;
  bool described = false;
};

/// Packed documents whose lengths have a heavy tail: P(length > x) falls like 1 / x.
std::string heavy_tailed_documents(Index tokens) {
  std::vector<Index> lengths;
  std::uint64_t state = 7;
  for (Index left = tokens; left > 0; left -= lengths.back()) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const double uniform = (static_cast<double>(state >> 11) + 1) * 0x1p-53;
    lengths.push_back(std::min(left, static_cast<Index>(64 / uniform)));
  }
  return "causal & " + to_string(documents(lengths));
}

std::vector<Case> standard_rank_cases() {
  constexpr Index packed = 32768;
  return {{.name = "causal", .pattern = "causal", .tokens = 16384},
          {.name = "window", .pattern = "window(256, 256) | tokens({0})", .tokens = 65536},
          {.name = "documents", .pattern = heavy_tailed_documents(packed), .tokens = packed},
          {.name = "lsh", .pattern = "lsh(64, 4)", .tokens = 32768}};
}

std::vector<Case> cases_of(const RanksBenchOptions& options) {
  if (options.described) {
    Case c = options.c;
    c.name = "custom";
    if (c.tokens == 0) c.tokens = 4096;
    return {c};
  }
  std::vector<Case> cases;
  for (Case c : standard_rank_cases()) {
    const bool named = std::count(options.only.begin(), options.only.end(), c.name) > 0;
    c.dtype = options.c.dtype;
    if (options.only.empty() || named) cases.push_back(c);
  }
  return cases;
}

std::string number_text(const Json& number, int digits) {
  return number.is_null() ? "" : fmt::format("{:.{}f}", number.get<double>(), digits);
}

void print_ranks_header() {
  fmt::print("{:<12}{:<9}{:>5}{:>4}  {:<9}{:>10}{:>8}{:>11}{:>11}{:>11}{:>11}{:>9}{:>6}{:>8}\n",
             "case", "backend", "ranks", "thr", "pass", "time ms", "spread", "predicted",
             "efficiency", "sent", "needed", "waiting", "same", "ulps");
}

void print_ranks_row(const Json& row) {
  if (row.contains("refused")) {
    fmt::print("{:<12}{:<9}{:>5}{:>4}  {}\n", row["case"].get<std::string>(),
               row["backend"].get<std::string>(), row["ranks"].get<Index>(),
               row["threads"].get<Index>(), row["refused"].get<std::string>());
    return;
  }
  const Json& needed = row["bytes_needed"];
  fmt::print(
      "{:<12}{:<9}{:>5}{:>4}  {:<9}{:>10.2f}{:>8.3f}{:>11}{:>11.3f}{:>11}{:>11}{:>9.3f}{:>6}"
      "{:>8.2f}\n",
      row["case"].get<std::string>(), row["backend"].get<std::string>(), row["ranks"].get<Index>(),
      row["threads"].get<Index>(), row["pass"].get<std::string>(), row["time_ms"].get<double>(),
      row["spread"].get<double>(), number_text(row["predicted_ms"], 2),
      row["efficiency"].get<double>(), bytes_text(row["bytes_sent"].get<Index>()),
      needed.is_null() ? "" : bytes_text(needed.get<Index>()), row["waiting_share"].get<double>(),
      row["same_bits"].get<bool>() ? "bits" : "", row["max_difference_ulps"].get<double>());
}

/// What the engine does not do is a row of its own; every rank refuses it alike.
Json refusal(const RanksBenchOptions& options, const Case& c, Index ranks, const char* why) {
  return {{"case", c.name},           {"pattern", c.pattern},
          {"tokens", c.tokens},       {"backend", options.backend},
          {"ranks", ranks},           {"threads", options.threads_per_rank},
          {"strict", options.strict}, {"refused", why}};
}

std::optional<Json> measure(const RanksBenchOptions& options, RankBackend& backend, const Case& c,
                            Index ranks, RankPass pass) {
  const BenchedRanks bench(
      c, {options.strict, options.threads_per_rank, options.isa, options.repeats});
  std::optional<Json> row;
  backend.run(ranks, [&](Communicator& communicator) {
    try {
      std::optional<Json> measured = bench.measure(communicator, pass, ranks);
      if (measured) row = std::move(measured);
    } catch (const std::invalid_argument& refused) {
      if (communicator.rank() == 0) row = refusal(options, c, ranks, refused.what());
    }
  });
  return row;
}

void warn_about_cpus(const RanksBenchOptions& options, Index ranks) {
  const Index cpus = usable_cpus(), wanted = ranks * options.threads_per_rank;
  if (options.backend == "threads" && wanted > cpus)
    message("rapt: {} ranks of {} thread{} share {} CPUs: efficiency cannot exceed {:.2f}", ranks,
            options.threads_per_rank, options.threads_per_rank == 1 ? "" : "s", cpus,
            static_cast<double>(cpus) / static_cast<double>(wanted));
}

void run(const RanksBenchOptions& options) {
  const std::unique_ptr<RankBackend> backend = rank_backend(options.backend);
  std::vector<Index> ranks = options.ranks;
  if (ranks.empty()) ranks = {backend->size().value_or(2)};
  BenchReport report(options, print_ranks_header, print_ranks_row);
  for (const Index count : ranks) {
    if (backend->prints()) warn_about_cpus(options, count);
    for (const Case& c : cases_of(options)) {
      for (const std::string& pass : options.passes) {
        if (backend->prints()) progress(fmt::format("measuring {}, {} ranks", c.name, count));
        std::optional<Json> row = measure(options, *backend, c, count, from_string<RankPass>(pass));
        if (row && backend->prints()) report.add(std::move(*row));
      }
    }
  }
  if (backend->prints()) report.finish();
}

std::vector<std::string> standard_rank_case_names() {
  std::vector<std::string> names;
  for (const Case& c : standard_rank_cases()) names.push_back(c.name);
  return names;
}

void add_rank_options(CLI::App& command, RanksBenchOptions& options) {
  command.add_option("--case", options.only, "Only these of the standard cases")
      ->check(CLI::IsMember(standard_rank_case_names()));
  command
      .add_option("--backend", options.backend,
                  "threads: ranks are threads of this process; mpi: processes that mpirun started")
      ->check(CLI::IsMember({"threads", "mpi"}))
      ->capture_default_str();
  command
      .add_option("--ranks", options.ranks,
                  "Number of ranks, one or several (default: 2, or all of the job)")
      ->check(whole_number(1));
  command.add_flag("--strict", options.strict, "The bits of one rank, whatever their number");
  command.add_option("--pass", options.passes, "One or several of forward, backward, both")
      ->check(CLI::IsMember({"forward", "backward", "both"}))
      ->capture_default_str();
  command.add_option("--threads", options.threads_per_rank, "Threads of each rank")
      ->check(whole_number(1))
      ->capture_default_str();
  add_isa_option(command, options.isa);
  command.add_option("--repeat", options.repeats, "Runs, of which the median counts")
      ->check(whole_number(1))
      ->capture_default_str();
  command.add_flag("--json", options.json,
                   "Print JSON: an object for one result, an array for several");
}

}  // namespace

void add_bench_ranks(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "ranks", "Time attention over ranks against one rank: standard cases, or one of your own");
  const auto options = std::make_shared<RanksBenchOptions>();
  command->add_option("--tokens", options->c.tokens, "Number of tokens")->check(whole_number(1));
  command->add_option("--pattern", options->c.pattern,
                      "Attention pattern, as in \"window(512, 0)\"");
  add_shape_options(*command, options->c);
  const auto described = command->get_options();
  command->add_option("--dtype", options->c.dtype, "Type of queries, keys, values and output")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str();
  add_rank_options(*command, *options);
  command->footer(
      "One rank that has all tokens and the ranks compute in turns. efficiency is the time of one\n"
      "rank / (ranks * their time); waiting is the share of their time in which ranks wait for\n"
      "messages. sent counts bytes that leave ranks; needed is what tiles of this pattern need at\n"
      "least. ulps is the largest difference from one rank, in units of the last place of the\n"
      "largest number of a row. predicted is what rapt plan --ranks would say with the speed\n"
      "of one rank and the network as measured here.\n"
      "mpirun -n 2 rapt-mpi bench ranks --backend mpi   (rank 0 prints)");
  command->callback([options, described, command] {
    for (const CLI::Option* option : described)
      options->described |= option->count() > 0 && option != command->get_help_ptr();
    if (options->described && !options->only.empty())
      throw CLI::ValidationError("--case",
                                 "names a standard case and excludes options that describe one");
    run(*options);
  });
}

}  // namespace rapt::cli
