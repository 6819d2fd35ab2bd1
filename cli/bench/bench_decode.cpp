#include <algorithm>
#include <memory>

#include "cli/bench/bench_report.h"
#include "cli/bench/plain_loop.h"
#include "cli/bench/timing.h"
#include "cli/case.h"
#include "cli/commands.h"
#include "cli/console/output.h"
#include "rapt/kv_cache.h"
#include "rapt/peak.h"

namespace rapt::cli {
namespace {

struct DecodeOptions : BenchOptions {
  std::vector<Index> keys = {512, 8192, 65536};
  std::vector<std::string> types = {"f32", "bf16", "int8"};
  Index batch = 1, queries = 1, heads = 16, kv_heads = 0, dim = 64;
  std::string against = "read";
  bool strict = false;
};

/// One batch of sequences of the same length, and queries for them.
struct Decode {
  Decode(const DecodeOptions& o, Index keys, CacheType type, const Context& context_)
      : context(context_),
        cache({.kv_heads = o.kv_heads == 0 ? o.heads : o.kv_heads, .dim = o.dim, .type = type},
              context),
        q(random_tensor({o.batch, o.heads, o.queries, o.dim}, 1)),
        k(random_tensor({1, cache.options().kv_heads, keys, o.dim}, 2)),
        v(random_tensor({1, cache.options().kv_heads, keys, o.dim}, 3)),
        out({o.batch, o.heads, o.queries, o.dim}),
        how{.pattern = causal(), .strict = o.strict} {
    for (Index item = 0; item < o.batch; ++item) {
      sequences.push_back(cache.add());
      cache.append(sequences.back(), k, v);
    }
  }

  void run() { attend_into(out, q, cache, sequences, how); }

  Context context;
  KvCache cache;
  std::vector<KvCache::Sequence> sequences;
  Tensor q, k, v, out;
  Attention how;
};

/// Keys, values and scales that one call has to read.
Index bytes_read(const DecodeOptions& o, Index keys, CacheType type, Index kv_heads) {
  const Index number = type == CacheType::f32 ? 4 : type == CacheType::bf16 ? 2 : 1;
  const Index scales = type == CacheType::int8 ? 2 * Index{sizeof(float)} : 0;
  return o.batch * kv_heads * keys * (2 * o.dim * number + scales);
}

/// Both sides of a comparison get as long, and the best run of each counts: a neighbour on the
/// machine can slow down either.
constexpr double sample_seconds = 0.03;

Json measure(const DecodeOptions& o, Index keys, CacheType type, const Context& context) {
  Decode decode(o, keys, type, context);
  const Index kv_heads = decode.cache.options().kv_heads;
  const Index bytes = bytes_read(o, keys, type, kv_heads);
  Tensor plain(decode.q.shape());
  std::vector<double> times, others, fractions;
  for (int repeat = 0; repeat < o.repeats; ++repeat) {
    times.push_back(best_ms([&] { decode.run(); }, sample_seconds));
    others.push_back(
        o.against == "loop"
            ? best_ms([&] { plain_loop(decode.q, decode.k, decode.v, plain); }, sample_seconds)
            : static_cast<double>(bytes) / measure_read_gbytes(bytes, sample_seconds, context) *
                  1e-6);
    fractions.push_back(others.back() / times.back());
  }
  const double middle = median(times);
  return {{"case", "decode"},
          {"keys", keys},
          {"queries", o.queries},
          {"batch", o.batch},
          {"heads", o.heads},
          {"kv_heads", kv_heads},
          {"dim", o.dim},
          {"dtype", to_string(type)},
          {"strict", o.strict},
          {"isa", context.isa()},
          {"threads", context.threads()},
          {"time_us", middle * 1e3},
          {"best_us", *std::min_element(times.begin(), times.end()) * 1e3},
          {"gbytes", static_cast<double>(bytes) / middle * 1e-6},
          {"against", o.against},
          {"against_us", median(others) * 1e3},
          {"fraction", median(fractions)},
          {"least_fraction", *std::min_element(fractions.begin(), fractions.end())},
          {"best_fraction", *std::max_element(fractions.begin(), fractions.end())},
          {"bytes", bytes}};
}

void print_decode_header(const DecodeOptions& options) {
  fmt::print("{:>8}{:>7}{:>7}{:>5}  {:<6}{:>4}{:>12}{:>9}{:>12}{:>9}{:>12}\n", "keys", "heads",
             "kv", "dim", "cache", "thr", "time us", "GB/s", options.against + " us", "speed",
             "from-to");
}

void print_decode_row(const Json& row) {
  fmt::print("{:>8}{:>7}{:>7}{:>5}  {:<6}{:>4}{:>12.2f}{:>9.1f}{:>12.2f}{:>9.2f}{:>7.2f}-{:.2f}\n",
             row["keys"].get<Index>(), row["heads"].get<Index>(), row["kv_heads"].get<Index>(),
             row["dim"].get<Index>(), row["dtype"].get<std::string>(), row["threads"].get<Index>(),
             row["time_us"].get<double>(), row["gbytes"].get<double>(),
             row["against_us"].get<double>(), row["fraction"].get<double>(),
             row["least_fraction"].get<double>(), row["best_fraction"].get<double>());
}

void run(const DecodeOptions& options) {
  if (options.against == "loop" && (options.batch != 1 || options.queries != 1))
    throw CLI::ValidationError("--against loop", "expected one sequence and one query");
  BenchReport report(
      options, [&] { print_decode_header(options); }, print_decode_row);
  for (const std::optional<Index> threads : options.thread_counts())
    for (const Index keys : options.keys)
      for (const std::string& type : options.types) {
        const Context context(threads, options.isa);
        progress(fmt::format("measuring {} keys, {}", keys, type));
        report.add(measure(options, keys, from_string<CacheType>(type), context));
      }
  report.finish();
}

}  // namespace

void add_bench_decode(CLI::App& bench) {
  CLI::App* command =
      bench.add_subcommand("decode", "Time a few new queries over a cache of keys and values");
  const auto o = std::make_shared<DecodeOptions>();
  command->add_option("--keys", o->keys, "Tokens in the cache, one or several")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--cache-type", o->types, "What the cache stores, one or several")
      ->check(CLI::IsMember({"f32", "bf16", "int8"}))
      ->capture_default_str();
  for (const auto& [name, number, what] :
       {std::tuple<const char*, Index*, const char*>{"--batch", &o->batch, "Sequences"},
        {"--queries", &o->queries, "New tokens of each sequence"},
        {"--heads", &o->heads, "Query heads"},
        {"--dim", &o->dim, "Dimension of queries, keys and values"}})
    command->add_option(name, *number, what)->check(whole_number(1))->capture_default_str();
  command->add_option("--kv-heads", o->kv_heads, "Key and value heads (default: as many as heads)")
      ->check(whole_number(1));
  add_bench_options(*command, *o);
  command
      ->add_option("--against", o->against,
                   "What it is compared with: plain reading of as many bytes with the same\n"
                   "threads, or a plain loop over f32 rows with one thread. The call and the loop\n"
                   "write only their output, into allocated memory")
      ->check(CLI::IsMember({"read", "loop"}))
      ->capture_default_str();
  command->add_flag("--strict", o->strict, "Bit-identical to a prompt in one call");
  command->footer(
      "GB/s counts the keys and values of the cache, each once. Speed is how many times as long "
      "the\n"
      "other takes: 0.9 of reading means that reading as many bytes takes 0.9 of its time. It is "
      "the\n"
      "median over runs, each of which compares the best of either side.");
  command->callback([o] { run(*o); });
}

}  // namespace rapt::cli
