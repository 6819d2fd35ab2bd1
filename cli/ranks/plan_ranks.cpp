#include "cli/ranks/plan_ranks.h"

#include <algorithm>
#include <stdexcept>

#include "cli/console/output.h"
#include "cli/ranks/attention_speed.h"
#include "rapt/lsh.h"
#include "rapt/plan.h"

namespace rapt::cli {
namespace {

using namespace distributed;

/// All that is known of a plan over ranks.
struct PlanOfRanks {
  Placement placement;
  ExchangeLoad load;
  CallSize size;
  Machine machine;
  bool measured;  // the speed, here

  Prediction predicted(RankPass pass) const { return predict(load, size, machine, pass); }
};

CallSize size_of_case(const Case& c) {
  const Shape k = c.k_shape();
  return {.batch = 1,
          .heads = c.heads,
          .kv_heads = k[1],
          .dim = c.dim,
          .value_dim = c.dim,
          .type = from_string<Type>(c.dtype)};
}

/// Beyond this, a plan of every tile and rank takes too long or too much memory.
bool is_small(Index tokens, Index ranks) {
  constexpr Index most_tiles = 16384, most_pairs_of_ranks = Index{1} << 20;
  const Index tiles = (tokens + Plan::tile - 1) / Plan::tile;
  return tiles <= most_tiles && tiles * ranks <= most_pairs_of_ranks;
}

void check_options(const PlanRanksOptions& options, const Pattern& pattern) {
  const Index kv_heads = options.c.k_shape()[1];
  if (options.c.heads % kv_heads != 0)
    throw std::invalid_argument(fmt::format("--heads is {} and --kv-heads {}, expected a multiple",
                                            options.c.heads, kv_heads));
  if (lsh_part(pattern))
    throw std::invalid_argument(
        "plan: lsh moves whole heads between ranks, whatever it sees; rapt bench ranks --case lsh "
        "measures it");
}

PlanOfRanks plan_of(const PlanRanksOptions& options) {
  const Pattern pattern = Pattern::parse(options.c.pattern);
  check_options(options, pattern);
  const CallSize size = size_of_case(options.c);
  const ExchangeOptions how{.strict = options.strict, .group = size.heads / size.kv_heads};
  const AttentionSpeed speed = options.gflops ? AttentionSpeed{*options.gflops, *options.gflops}
                                              : measure_attention_speed(size, options.threads);
  const Machine machine{.forward_gflops = speed.forward_gflops,
                        .backward_gflops = speed.backward_gflops,
                        .network_gbits = options.network_gbits,
                        .latency_us = options.latency_us};
  const Index tokens = options.c.tokens, ranks = *options.ranks;
  if (is_small(tokens, ranks)) {
    const Index granule = options.strict ? 8 : 1;
    const Placement placement =
        balanced_placement(tokens, ranks, {&pattern, 1}, {.granule = granule});
    return {placement, load_of({pattern, placement, how}, size), size, machine, !options.gflops};
  }
  const Placement placement = estimated_placement(tokens, ranks, pattern);
  const Index queries_of_rank = std::clamp<Index>(16384 / ranks, 8, 64);
  return {placement, estimated_load(pattern, placement, how, size, queries_of_rank), size, machine,
          !options.gflops};
}

/// A character for each stretch of tokens: its rank, or + for several.
std::string drawing_of(const Placement& placement, Index columns) {
  static constexpr std::string_view names = "0123456789abcdefghijklmnopqrstuvwxyz";
  if (placement.ranks() > std::ssize(names)) return "";
  const Index cells = std::min(columns, placement.tiles());
  std::string text;
  for (Index cell = 0; cell < cells; ++cell) {
    const Index first = cell * placement.tiles() / cells;
    const Index end = (cell + 1) * placement.tiles() / cells;
    const Index rank = placement.rank_of_tile(first);
    bool same = true;
    for (Index tile = first; tile < end; ++tile) same &= placement.rank_of_tile(tile) == rank;
    text += same ? names[static_cast<std::size_t>(rank)] : '+';
  }
  return text;
}

Index stretches_of(const Placement& placement) {
  Index stretches = placement.tiles() == 0 ? 0 : 1;
  for (Index tile = 1; tile < placement.tiles(); ++tile)
    stretches += placement.rank_of_tile(tile) != placement.rank_of_tile(tile - 1) ? 1 : 0;
  return stretches;
}

Json json_of(const Prediction& prediction) {
  return {{"time_ms", prediction.time_ms},
          {"one_rank_ms", prediction.one_rank_ms},
          {"efficiency", prediction.efficiency},
          {"waiting_share", prediction.waiting_share},
          {"slowest_rank", prediction.slowest}};
}

Json json_of(const RankLoad& rank) {
  return {{"tokens", rank.tokens},
          {"pairs", rank.pairs},
          {"computed_pairs", rank.computed},
          {"key_tiles_sent", rank.traffic.keys_sent},
          {"key_tiles_received", rank.traffic.keys_received},
          {"query_tiles_sent", rank.traffic.queries_sent},
          {"query_tiles_received", rank.traffic.queries_received},
          {"forward_bytes_sent", rank.forward_bytes_sent},
          {"forward_bytes_received", rank.forward_bytes_received},
          {"backward_bytes_sent", rank.backward_bytes_sent},
          {"backward_bytes_received", rank.backward_bytes_received}};
}

void print_json(const PlanRanksOptions& options, const PlanOfRanks& plan,
                const std::string& drawing) {
  Json ranks = Json::array();
  for (const RankLoad& rank : plan.load.ranks) ranks.push_back(json_of(rank));
  print({{"pattern", to_string(Pattern::parse(options.c.pattern))},
         {"tokens", options.c.tokens},
         {"ranks", *options.ranks},
         {"heads", plan.size.heads},
         {"kv_heads", plan.size.kv_heads},
         {"dim", plan.size.dim},
         {"dtype", options.c.dtype},
         {"strict", plan.load.strict},
         {"estimated", plan.load.estimated},
         {"pairs", plan.load.pairs},
         {"imbalance", plan.load.imbalance()},
         {"forward_bytes", plan.load.forward_bytes()},
         {"forward_bytes_needed", plan.load.forward_bytes_needed},
         {"backward_bytes", plan.load.backward_bytes()},
         {"backward_bytes_needed", plan.load.backward_bytes_needed},
         {"forward_gflops", plan.machine.forward_gflops},
         {"backward_gflops", plan.machine.backward_gflops},
         {"network_gbits", plan.machine.network_gbits},
         {"latency_us", plan.machine.latency_us},
         {"forward", json_of(plan.predicted(RankPass::forward))},
         {"backward", json_of(plan.predicted(RankPass::backward))},
         {"both", json_of(plan.predicted(RankPass::both))},
         {"stretches", stretches_of(plan.placement)},
         {"drawing", drawing},
         {"by_rank", ranks}});
}

std::string bytes_text_of(double bytes) { return bytes_text(static_cast<Index>(bytes)); }

void print_rank(const std::string& name, const RankLoad& rank) {
  const Traffic& t = rank.traffic;
  fmt::print("{:>5}{:>12}{:>12.4g}{:>12.4g}  {:<18}{:<14}{:>12}{:>12}\n", name, rank.tokens,
             rank.pairs, rank.computed, fmt::format("{} / {}", t.keys_sent, t.keys_received),
             fmt::format("{} / {}", t.queries_sent, t.queries_received),
             bytes_text_of(rank.forward_bytes_sent), bytes_text_of(rank.backward_bytes_sent));
}

/// All ranks if they are few, else the first, and those that matter most.
void print_ranks(const ExchangeLoad& load) {
  constexpr Index most_lines = 16;
  fmt::print("{:>5}{:>12}{:>12}{:>12}  {:<18}{:<14}{:>12}{:>12}\n", "rank", "tokens", "pairs",
             "computed", "key tiles out/in", "query tiles", "forward", "backward");
  const Index count = std::ssize(load.ranks);
  for (Index i = 0; i < (count > most_lines ? most_lines / 2 : count); ++i)
    print_rank(std::to_string(i), load.ranks[static_cast<std::size_t>(i)]);
  if (count <= most_lines) return;
  const auto name = [&](auto at) { return std::to_string(at - load.ranks.begin()); };
  const auto busiest =
      std::max_element(load.ranks.begin(), load.ranks.end(),
                       [](const auto& a, const auto& b) { return a.computed < b.computed; });
  const auto talks = std::max_element(
      load.ranks.begin(), load.ranks.end(),
      [](const auto& a, const auto& b) { return a.forward_bytes_sent < b.forward_bytes_sent; });
  fmt::print("  ... {} more; the one that computes most, and the one that sends most:\n",
             count - most_lines / 2);
  print_rank(name(busiest), *busiest);
  print_rank(name(talks), *talks);
}

/// "12.3 ms", "4.5 s", "6.7 h"
std::string predicted_text(double ms) {
  if (ms < 10'000) return fmt::format("{:.2f} ms", ms);
  return ms < 3.6e7 ? fmt::format("{:.1f} s", ms * 1e-3) : fmt::format("{:.1f} h", ms / 3.6e6);
}

void print_prediction(const char* name, const Prediction& prediction) {
  fmt::print("{:<10}{}, one rank {}, efficiency {:.1f} %, waiting {:.1f} %\n", name,
             predicted_text(prediction.time_ms), predicted_text(prediction.one_rank_ms),
             100 * prediction.efficiency, 100 * prediction.waiting_share);
}

void print_text(const PlanRanksOptions& options, const PlanOfRanks& plan,
                const std::string& drawing) {
  const ExchangeLoad& load = plan.load;
  if (!drawing.empty()) fmt::print("{}\n\n", drawing);
  fmt::print("{}, {} tokens on {} ranks, in {} stretches{}\n",
             to_string(Pattern::parse(options.c.pattern)), options.c.tokens, *options.ranks,
             stretches_of(plan.placement), load.strict ? ", strict" : "");
  if (load.estimated)
    fmt::print("estimated from a few queries of each rank, as every tile would take too long\n");
  fmt::print("\npairs and tiles for each head, bytes of all {} heads that leave the rank:\n",
             plan.size.heads);
  print_ranks(load);
  fmt::print("\nsent      forward {} ({} needed), backward {} ({} needed)\n",
             bytes_text_of(load.forward_bytes()), bytes_text_of(load.forward_bytes_needed),
             bytes_text_of(load.backward_bytes()), bytes_text_of(load.backward_bytes_needed));
  fmt::print("imbalance {:.3f}\n", load.imbalance());
  fmt::print("rank      {:.4g} GFLOP/s forward, {:.4g} backward, {}\n", plan.machine.forward_gflops,
             plan.machine.backward_gflops, plan.measured ? "measured here" : "given");
  fmt::print("network   {:.4g} Gbit/s, {:.4g} us\n\n", plan.machine.network_gbits,
             plan.machine.latency_us);
  print_prediction("forward", plan.predicted(RankPass::forward));
  print_prediction("backward", plan.predicted(RankPass::backward));
  print_prediction("both", plan.predicted(RankPass::both));
}

}  // namespace

void print_plan_of_ranks(const PlanRanksOptions& options, Index columns, bool json) {
  const PlanOfRanks plan = plan_of(options);
  const std::string drawing = drawing_of(plan.placement, columns);
  json ? print_json(options, plan, drawing) : print_text(options, plan, drawing);
}

void add_plan_ranks_options(CLI::App& command, PlanRanksOptions& options) {
  const auto number = [&](const char* name, double& value, const char* what) {
    command.add_option(name, value, what)
        ->check(CLI::Range(0.0, 1e9))
        ->check(finite_number())
        ->capture_default_str();
  };
  command.add_option("--ranks", options.ranks, "Plan over so many ranks instead of one machine")
      ->check(whole_number(1));
  number("--network", options.network_gbits, "Gbit/s of each rank's network, in each direction");
  number("--latency", options.latency_us, "Microseconds of a message");
  command
      .add_option("--gflops", options.gflops,
                  "What a rank computes in attention (default: measured here)")
      ->check(CLI::Range(1e-3, 1e9));
  command
      .add_option("--threads", options.threads, "Threads of that measurement (default: all CPUs)")
      ->check(whole_number(1));
  command.add_flag("--strict", options.strict, "The bits of one rank, whatever their number");
  add_shape_options(command, options.c);
  command.add_option("--dtype", options.c.dtype, "Type of queries, keys and values")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str();
}

}  // namespace rapt::cli
