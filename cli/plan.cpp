#include "rapt/plan.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <sstream>

#include "cli/commands.h"
#include "cli/console/output.h"
#include "cli/ranks/plan_ranks.h"

namespace rapt::cli {
namespace {

struct PlanOptions {
  std::string pattern;
  Index tokens = 0;
  Index queries = -1;
  Index columns = 0;
  bool json = false;
  PlanRanksOptions over_ranks;
};

Index terminal_columns() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

Index runs_of(const Plan& plan) {
  Index runs = 0;
  for (Index tile = 0; tile < plan.query_tiles(); ++tile)
    runs += static_cast<Index>(plan.visits(tile).size());
  return runs;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// The shortest of a few constructions: what planning costs when nothing disturbs it.
double planning_ms(const Pattern& pattern, Lengths lengths) {
  using Clock = std::chrono::steady_clock;
  double best = 1e300;
  double spent = 0;
  for (int attempt = 0; attempt < 5 && spent < 200; ++attempt) {
    const auto start = Clock::now();
    const Plan plan(pattern, lengths);
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    best = std::min(best, ms);
    spent += ms;
  }
  return best;
}

void run_over_ranks(const PlanOptions& options, Index columns) {
  if (options.queries >= 0)
    throw CLI::ValidationError("--queries", "excludes --ranks, where every token is a query");
  PlanRanksOptions over_ranks = options.over_ranks;
  over_ranks.c.pattern = options.pattern;
  over_ranks.c.tokens = options.tokens;
  print_plan_of_ranks(over_ranks, columns, options.json);
}

void run(const PlanOptions& options) {
  const Index columns =
      options.columns > 0 ? options.columns : std::min<Index>(terminal_columns(), 100);
  if (options.over_ranks.ranks) return run_over_ranks(options, columns);
  const Pattern pattern = Pattern::parse(options.pattern);
  const Lengths lengths{options.queries < 0 ? options.tokens : options.queries, options.tokens};
  const Plan plan(pattern, lengths);
  const double all = static_cast<double>(lengths.queries) * static_cast<double>(lengths.keys);
  const double density = all == 0 ? 0 : static_cast<double>(plan.pairs()) / all;
  const double plan_ms = planning_ms(pattern, lengths);
  const Index tiles = plan.query_tiles() * plan.key_tiles();
  if (options.json) {
    print({{"pattern", to_string(pattern)},
           {"tokens", lengths.keys},
           {"queries", lengths.queries},
           {"pairs", plan.pairs()},
           {"density", density},
           {"tile", Plan::tile},
           {"tiles", tiles},
           {"whole_tiles", plan.whole_tiles()},
           {"masked_tiles", plan.masked_tiles()},
           {"runs", runs_of(plan)},
           {"masks", plan.masks()},
           {"plan_ms", plan_ms},
           {"bytes", plan.bytes()},
           {"drawing", lines_of(plan.drawing(columns))}});
    return;
  }
  const std::string drawing = plan.drawing(columns);
  fmt::print("{}{}", drawing, drawing.empty() || drawing.back() == '\n' ? "" : "\n");
  fmt::print("\n{}, {} queries, {} keys\n", to_string(pattern), lengths.queries, lengths.keys);
  fmt::print("pairs   {} ({:.4g} % of all)\n", plan.pairs(), 100 * density);
  fmt::print("tiles   {} whole, {} masked, {} absent (each {} x {})\n", plan.whole_tiles(),
             plan.masked_tiles(), tiles - plan.whole_tiles() - plan.masked_tiles(), Plan::tile,
             Plan::tile);
  fmt::print("plan    {} runs, {} different masks, {}, made in {:.2f} ms\n", runs_of(plan),
             plan.masks(), bytes_text(plan.bytes()), plan_ms);
}

}  // namespace

void add_plan(CLI::App& app) {
  CLI::App* command = app.add_subcommand("plan", "Draw an attention pattern and count its work");
  const auto options = std::make_shared<PlanOptions>();
  command->add_option("pattern", options->pattern, "Pattern, as in \"window(512, 0)\"")->required();
  command->add_option("--tokens", options->tokens, "Number of keys")
      ->required()
      ->check(whole_number(0));
  command
      ->add_option("--queries", options->queries,
                   "Number of queries, the newest positions (default: as many as keys)")
      ->check(whole_number(0));
  command
      ->add_option("--columns", options->columns,
                   "Widest drawing (default: the terminal, at most 100)")
      ->check(whole_number(8));
  command->add_flag("--json", options->json, "Print JSON");
  add_plan_ranks_options(*command, options->over_ranks);
  command->footer(
      "Leaves: full  causal  window(left, right)  tokens({0, 7})  prefix(n)  documents({3, 5})\n"
      "        blocks(size, {{0}, {0, 1}})  keys(n)  dilated(step, left, right)\n"
      "        chunks(size, before, after)  lsh(chunk, rounds, {buckets}, seed)\n"
      "joined by & and |. lsh has no plan: what it sees depends on the vectors. See rapt explain "
      "and\n"
      "rapt bench lsh.\n"
      "With --ranks: who has which tokens, what is sent, and the time on ranks of this speed and\n"
      "network, for any number of tokens and ranks.");
  command->callback([options] { run(*options); });
}

}  // namespace rapt::cli
