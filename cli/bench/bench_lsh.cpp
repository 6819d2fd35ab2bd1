#include <cmath>
#include <memory>

#include "cli/bench/bench_report.h"
#include "cli/bench/timing.h"
#include "cli/case.h"
#include "cli/commands.h"
#include "cli/console/output.h"
#include "rapt/kv_cache.h"
#include "rapt/lsh_recall.h"

namespace rapt::cli {
namespace {

struct LshBenchOptions : BenchOptions {
  bool recall = false, decode = false;
  std::vector<Index> tokens = {4096};
  std::vector<Index> rounds = {1, 2, 4, 8};
  std::vector<std::string> buckets = {"32", "128", "16x32"};
  Index chunk = 64, before = 1, after = 0, heads = 4, dim = 64;
  Index top = 16, queries = 256, clusters = 64;
  double spread = 0.5, temperature = 1;
  bool causal = false, all_queries = false;
};

/// "16x32" -> {16, 32}
std::vector<Index> factors_of(const std::string& text) {
  std::vector<Index> factors;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('x', at), text.size());
    const std::string part = text.substr(at, end - at);
    if (part.empty() || part.size() > 7 || part.find_first_not_of("0123456789") != part.npos)
      throw CLI::ValidationError(
          "--buckets", "\"" + text + "\" given, expected an even number or several joined by x");
    factors.push_back(std::stoll(part));
    at = end + 1;
  }
  return factors;
}

/// Vectors around random centres, of root mean square 1 / temperature: logits of equal vectors are
/// sqrt(dim) / temperature.
Tensor clustered(const LshBenchOptions& o, Index tokens) {
  const Tensor centres = random_tensor({1, o.heads, o.clusters, o.dim}, 11);
  Tensor x = random_tensor({1, o.heads, tokens, o.dim}, 12);
  for (Index row = 0; row < o.heads * tokens; ++row) {
    // A fixed scattering of tokens over clusters; neighbours in the text are strangers.
    const Index cluster = (row % tokens) * 2654435761 % 4294967291 % o.clusters;
    const float* centre = centres.data() + (row / tokens * o.clusters + cluster) * o.dim;
    float* to = x.data() + row * o.dim;
    double square = 0;
    for (Index c = 0; c < o.dim; ++c) {
      to[c] = centre[c] + static_cast<float>(o.spread) * to[c];
      square += static_cast<double>(to[c]) * static_cast<double>(to[c]);
    }
    const double factor = 1 / std::sqrt(square / static_cast<double>(o.dim)) / o.temperature;
    for (Index c = 0; c < o.dim; ++c) to[c] = static_cast<float>(to[c] * factor);
  }
  return x;
}

Lsh leaf(const LshBenchOptions& o, Index rounds, const std::string& buckets) {
  return {.chunk = o.chunk,
          .rounds = rounds,
          .buckets = factors_of(buckets),
          .before = o.before,
          .after = o.after};
}

Json measure_recall(const LshBenchOptions& o, const Tensor& x, const Lsh& leaf,
                    const std::string& buckets, const Context& context) {
  const Attention how{.pattern = o.causal ? lsh(leaf) & rapt::causal() : lsh(leaf)};
  const LshRecall recall = lsh_recall(
      x, x, how, {.top = o.top, .queries = o.all_queries ? std::nullopt : std::optional(o.queries)},
      context);
  return {{"case", "lsh recall"},
          {"tokens", x.shape()[2]},
          {"heads", o.heads},
          {"dim", o.dim},
          {"clusters", o.clusters},
          {"spread", o.spread},
          {"temperature", o.temperature},
          {"pattern", to_string(how.pattern)},
          {"chunk", o.chunk},
          {"rounds", leaf.rounds},
          {"buckets", buckets},
          {"top", o.top},
          {"top_recall", recall.top},
          {"mass_recall", recall.mass},
          {"keys_met", recall.keys},
          {"queries", recall.queries}};
}

void print_lsh_recall_header() {
  fmt::print("{:>8}{:>7}{:>8}{:>10}{:>12}{:>10}{:>12}\n", "tokens", "chunk", "rounds", "buckets",
             "top recall", "mass", "keys met");
}

void print_lsh_recall(const Json& row) {
  fmt::print("{:>8}{:>7}{:>8}{:>10}{:>12.3f}{:>10.3f}{:>12.4f}\n", row["tokens"].get<Index>(),
             row["chunk"].get<Index>(), row["rounds"].get<Index>(),
             row["buckets"].get<std::string>(), row["top_recall"].get<double>(),
             row["mass_recall"].get<double>(), row["keys_met"].get<double>());
}

/// One more token: appended, attended, removed. Sixteen different ones in a row, so that their
/// neighbours were not just read.
double step_ms(const LshBenchOptions& o, KvCache& cache, const Attention& how,
               const std::vector<Tensor>& some) {
  constexpr int steps = 16;
  const KvCache::Sequence sequence = 0;
  const Index tokens = cache.tokens(sequence);
  std::size_t next = 0;
  const auto work = [&] {
    for (int step = 0; step < steps; ++step) {
      const Tensor& token = some[next++ % some.size()];
      cache.append(sequence, token, token);
      attend(token, cache, {&sequence, 1}, how);
      cache.truncate(sequence, tokens);
    }
  };
  std::vector<double> times;
  for (int repeat = 0; repeat < o.repeats; ++repeat) times.push_back(best_ms(work, 0.03) / steps);
  return median(times);
}

Json measure_decode(const LshBenchOptions& o, const Tensor& x, const Lsh& leaf,
                    const std::string& buckets, const Context& context) {
  std::vector<Tensor> some;
  for (std::uint64_t seed = 0; seed < 256; ++seed)
    some.push_back(random_tensor({1, o.heads, 1, o.dim}, 100 + seed));
  const CacheOptions options{.kv_heads = o.heads, .dim = o.dim};
  CacheOptions hashed = options;
  hashed.lsh = CacheLsh{.lsh = leaf};
  const auto time = [&](const CacheOptions& made, const Pattern& pattern) {
    KvCache cache(made, context);
    cache.append(cache.add(), x, x);
    return step_ms(o, cache, {.pattern = pattern}, some) * 1e3;
  };
  const double full_us = time(options, rapt::causal());
  const double hashed_us = time(hashed, lsh(leaf) & rapt::causal());
  return {{"case", "lsh decode"}, {"tokens", x.shape()[2]}, {"heads", o.heads},
          {"dim", o.dim},         {"chunk", o.chunk},       {"rounds", leaf.rounds},
          {"buckets", buckets},   {"isa", context.isa()},   {"threads", context.threads()},
          {"step_us", hashed_us}, {"all_keys_us", full_us}};
}

void print_lsh_decode_header() {
  fmt::print("{:>8}{:>7}{:>8}{:>10}{:>5}{:>12}{:>14}\n", "tokens", "chunk", "rounds", "buckets",
             "thr", "step us", "all keys us");
}

void print_lsh_decode(const Json& row) {
  fmt::print("{:>8}{:>7}{:>8}{:>10}{:>5}{:>12.1f}{:>14.1f}\n", row["tokens"].get<Index>(),
             row["chunk"].get<Index>(), row["rounds"].get<Index>(),
             row["buckets"].get<std::string>(), row["threads"].get<Index>(),
             row["step_us"].get<double>(), row["all_keys_us"].get<double>());
}

void run(const LshBenchOptions& o) {
  if (o.recall == o.decode)
    throw CLI::ValidationError("bench lsh", "expected one of --recall and --decode");
  BenchReport report(o, o.recall ? print_lsh_recall_header : print_lsh_decode_header,
                     o.recall ? print_lsh_recall : print_lsh_decode);
  for (const std::optional<Index> threads : o.thread_counts())
    for (const Index tokens : o.tokens) {
      const Context context(threads, o.isa);
      const Tensor x = clustered(o, tokens);
      for (const Index rounds : o.rounds)
        for (const std::string& buckets : o.buckets) {
          progress(fmt::format("measuring {} tokens, {} rounds, {}", tokens, rounds, buckets));
          const Lsh one = leaf(o, rounds, buckets);
          report.add(o.recall ? measure_recall(o, x, one, buckets, context)
                              : measure_decode(o, x, one, buckets, context));
        }
    }
  report.finish();
}

void add_numbers(CLI::App& command, LshBenchOptions& o) {
  for (const auto& [name, number, least, what] :
       {std::tuple<const char*, Index*, Index, const char*>{"--chunk", &o.chunk, 1,
                                                            "Tokens of a chunk"},
        {"--before", &o.before, 0, "Chunks before its own that a query sees"},
        {"--after", &o.after, 0, "Chunks after it"},
        {"--heads", &o.heads, 1, "Heads"},
        {"--dim", &o.dim, 1, "Dimension of queries and keys"},
        {"--top", &o.top, 1, "True neighbours of a query"},
        {"--queries", &o.queries, 1, "Queries of each head to measure"},
        {"--clusters", &o.clusters, 1, "Number of clusters of tokens"}})
    command.add_option(name, *number, what)->check(whole_number(least))->capture_default_str();
  for (const auto& [name, number, what] :
       {std::tuple<const char*, double*, const char*>{
            "--spread", &o.spread,
            "Noise around a centre, whose elements have standard deviation 1"},
        {"--temperature", &o.temperature, "What queries are divided by"}})
    command.add_option(name, *number, what)
        ->check(CLI::Range(1e-6, 1e6))
        ->check(finite_number())
        ->capture_default_str();
}

}  // namespace

void add_bench_lsh(CLI::App& bench) {
  CLI::App* command =
      bench.add_subcommand("lsh", "Measure what hashed attention finds, or its time per token");
  const auto o = std::make_shared<LshBenchOptions>();
  command->add_flag("--recall", o->recall,
                    "Share of the true neighbours and of the softmax that it finds");
  command->add_flag("--decode", o->decode,
                    "Time of one more token over a hashed cache, and over all keys");
  command->add_option("--tokens", o->tokens, "Tokens, one or several")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--rounds", o->rounds, "Rounds of hashing, one or several")
      ->check(whole_number(1))
      ->capture_default_str();
  command
      ->add_option("--buckets", o->buckets,
                   "Buckets, one or several: even numbers, or factors as in 16x32")
      ->capture_default_str();
  add_numbers(*command, *o);
  command->add_flag("--all-queries", o->all_queries, "Measure every query (recall)")
      ->excludes("--queries");
  command->add_flag("--causal", o->causal, "Keys at or before the query only (recall)");
  add_bench_options(*command, *o);
  command->footer(
      "Tokens are vectors around random centres, queries and keys alike, divided by their root\n"
      "mean square and by the temperature. keys met is the share of all keys that a query is\n"
      "compared with: what a random choice of as many would find. lsh_recall() in\n"
      "rapt/lsh_recall.h measures your own vectors.");
  command->callback([o] { run(*o); });
}

}  // namespace rapt::cli
