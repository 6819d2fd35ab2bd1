#include <algorithm>
#include <memory>

#include "cli/bench/bench_report.h"
#include "cli/bench/timing.h"
#include "cli/case.h"
#include "cli/commands.h"
#include "cli/console/output.h"
#include "rapt/peak.h"
#include "rapt/rope.h"

namespace rapt::cli {
namespace {

struct RopeBenchOptions : BenchOptions {
  std::vector<Index> tokens = {1, 4096};
  std::vector<std::string> types = {"f32", "bf16"};
  std::vector<std::string> layouts = {"half_split", "interleaved"};
  Index batch = 1, heads = 32, dim = 128;
  std::optional<Index> rotated = {};
  bool tokens_first = false, apart = false;
};

/// What one row of the report is about.
struct RopeCase {
  Index tokens;
  Type type;
  std::string layout;
};

/// The same memory as [batch, heads, tokens, dim] or, tokens first, [batch, tokens, heads, dim].
AnyMutableView view_of(Tensor& x, bool tokens_first) {
  const Shape& shape = x.shape();
  const Index token = tokens_first ? shape[1] * shape[3] : shape[3];
  const Index head = tokens_first ? shape[3] : shape[2] * shape[3];
  return AnyMutableView::unchecked(x.memory(), x.type(), shape,
                                   {shape[1] * shape[2] * shape[3], head, token, 1});
}

Json measure(const RopeBenchOptions& o, const RopeCase& c, const Context& context) {
  const Rope rope(
      {.dim = o.dim, .rotated = o.rotated, .layout = from_string<RopeLayout>(c.layout)});
  Tensor x = random_tensor({o.batch, o.heads, c.tokens, o.dim}, 1, c.type);
  Tensor y(o.apart ? x.shape() : Shape{}, c.type);
  const AnyMutableView in = view_of(x, o.tokens_first);
  const auto work = [&] {
    if (o.apart) return rope.apply_into(view_of(y, o.tokens_first), in, {}, context);
    rope.apply(in, {}, context);
  };
  const Index bytes = x.elements() * static_cast<Index>(size_of(c.type));
  work();  // the tables
  std::vector<double> times, copies, fractions;
  for (int repeat = 0; repeat < o.repeats; ++repeat) {
    times.push_back(best_ms(work, 0.03));
    copies.push_back(measure_copy_gbytes(bytes, 0.03, context));
    fractions.push_back(2 * static_cast<double>(bytes) / times.back() * 1e-6 / copies.back());
  }
  const double middle = median(times);
  return {{"case", "rope"},
          {"layout", c.layout},
          {"tokens", c.tokens},
          {"batch", o.batch},
          {"heads", o.heads},
          {"dim", o.dim},
          {"rotated", o.rotated.value_or(o.dim)},
          {"dtype", to_string(c.type)},
          {"tokens_first", o.tokens_first},
          {"in_place", !o.apart},
          {"isa", context.isa()},
          {"threads", context.threads()},
          {"time_us", middle * 1e3},
          {"best_us", *std::min_element(times.begin(), times.end()) * 1e3},
          {"gbytes", 2 * static_cast<double>(bytes) / middle * 1e-6},
          {"copy_gbytes", median(copies)},
          {"read_gbytes", measure_read_gbytes(bytes, 0.1, context)},
          {"fraction_of_copy", median(fractions)},
          {"best_fraction", *std::max_element(fractions.begin(), fractions.end())},
          {"bytes", 2 * bytes}};
}

void print_rope_header() {
  fmt::print("{:>8}{:>7}{:>5}  {:<12}{:<6}{:>4}{:>12}{:>9}{:>11}{:>11}{:>9}\n", "tokens", "heads",
             "dim", "layout", "type", "thr", "time us", "GB/s", "copy GB/s", "read GB/s",
             "of copy");
}

void print_rope_row(const Json& row) {
  fmt::print("{:>8}{:>7}{:>5}  {:<12}{:<6}{:>4}{:>12.1f}{:>9.1f}{:>11.1f}{:>11.1f}{:>9.2f}\n",
             row["tokens"].get<Index>(), row["heads"].get<Index>(), row["dim"].get<Index>(),
             row["layout"].get<std::string>(), row["dtype"].get<std::string>(),
             row["threads"].get<Index>(), row["time_us"].get<double>(), row["gbytes"].get<double>(),
             row["copy_gbytes"].get<double>(), row["read_gbytes"].get<double>(),
             row["fraction_of_copy"].get<double>());
}

std::vector<RopeCase> cases_of(const RopeBenchOptions& o) {
  std::vector<RopeCase> cases;
  for (const Index tokens : o.tokens)
    for (const std::string& layout : o.layouts)
      for (const std::string& type : o.types)
        cases.push_back({tokens, from_string<Type>(type), layout});
  return cases;
}

void run(const RopeBenchOptions& o) {
  BenchReport report(o, print_rope_header, print_rope_row);
  for (const std::optional<Index> threads : o.thread_counts())
    for (const RopeCase& c : cases_of(o)) {
      progress(fmt::format("measuring {} tokens, {}, {}", c.tokens, c.layout, to_string(c.type)));
      report.add(measure(o, c, Context(threads, o.isa)));
    }
  report.finish();
}

}  // namespace

void add_bench_rope(CLI::App& bench) {
  CLI::App* command =
      bench.add_subcommand("rope", "Time rotary positions of queries or keys against copying");
  const auto o = std::make_shared<RopeBenchOptions>();
  command->add_option("--tokens", o->tokens, "Tokens, one or several")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--dtype", o->types, "Types, one or several")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str();
  command->add_option("--layout", o->layouts, "Which channels form pairs, one or several")
      ->check(CLI::IsMember({"half_split", "interleaved"}))
      ->capture_default_str();
  for (const auto& [name, number, what] :
       {std::tuple<const char*, Index*, const char*>{"--batch", &o->batch, "Batch items"},
        {"--heads", &o->heads, "Heads"},
        {"--dim", &o->dim, "Channels of a head"}})
    command->add_option(name, *number, what)->check(whole_number(1))->capture_default_str();
  command->add_option("--rotated", o->rotated, "Channels that rotate (default: all)")
      ->check(whole_number(2));
  command->add_flag("--tokens-first", o->tokens_first,
                    "Memory is [batch, tokens, heads, dim] and not [batch, heads, tokens, dim]");
  command->add_flag("--out-of-place", o->apart, "Write to other memory instead of in place");
  add_bench_options(*command, *o);
  command->footer(
      "GB/s counts every element read once and written once. It is compared with copying as many\n"
      "bytes from one place to another, measured after every run with the same threads.");
  command->callback([o] { run(*o); });
}

}  // namespace rapt::cli
