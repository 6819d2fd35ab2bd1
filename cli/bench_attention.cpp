#include <algorithm>
#include <iterator>
#include <memory>

#include "cli/bench_cases.h"
#include "cli/commands.h"
#include "cli/measure.h"
#include "cli/output.h"

namespace rapt::cli {
namespace {

struct BenchOptions {
  Case c;
  std::vector<Index> tokens;
  std::vector<Index> threads;
  std::vector<std::string> only;
  std::string isa;
  int repeats = 7;
  bool described = false;  // a case was given; otherwise the standard ones run
  bool forward = false;
  bool backward = false;
  bool json = false;
};

Index bytes_of(const Tensor& tensor) { return 4 * tensor.elements(); }

Index bytes_of(const Attended& y) {
  Index bytes = bytes_of(y.out) + bytes_of(y.lse) + std::ssize(y.rows.max) * Index{sizeof(float)} +
                std::ssize(y.rows.sum) * Index{sizeof(double)};
  if (y.stats)
    for (const Tensor* t : {&y.stats->entropy, &y.stats->largest, &y.stats->logit_variance,
                            &y.stats->jacobian_norm, &y.stats->reach, &y.stats->sink_mass})
      bytes += bytes_of(*t);
  return bytes;
}

Index bytes_of(const Gradients& g) {
  Index bytes = 0;
  for (const Tensor* t :
       {&g.dq, &g.dk, &g.dv, &g.dslopes, &g.dtable, &g.drelative_keys, &g.ddense, &g.dsinks})
    bytes += bytes_of(*t);
  return bytes;
}

/// Operands of a case and the call to measure.
class Bench {
 public:
  Bench(const Case& c, const Context& context)
      : c_(c),
        context_(context),
        rule_(rule_of(c)),
        q_(random_tensor(c.q_shape(), 1)),
        k_(random_tensor(c.k_shape(), 2)),
        v_(random_tensor(c.v_shape(), 3)),
        pairs_(Plan(rule_.how.pattern, c.lengths()).pairs()) {}

  Json measure(Pass pass, int repeats) {
    if (pass == Pass::backward) prepare_backward();
    const auto work = [&] { output_bytes_ = run(pass); };
    work();
    const std::optional<Index> memory = peak_memory_of(work);
    const double flops = flops_of(c_, pairs_, pass);
    const Timing timing = time_against_peak(work, flops, context_, repeats);
    return report(pass, flops, timing, memory);
  }

 private:
  Index run(Pass pass) const {
    if (pass == Pass::forward) return bytes_of(attend(q_, k_, v_, rule_.how, context_));
    return bytes_of(attend_backward(dout_, q_, k_, v_, y_.out, y_.rows, rule_.how, context_));
  }

  void prepare_backward() {
    if (!dout_.empty()) return;
    dout_ = random_tensor(c_.out_shape(), 4);
    y_ = attend(q_, k_, v_, rule_.how, context_);
  }

  Json report(Pass pass, double flops, const Timing& timing, std::optional<Index> memory) const {
    const Lengths lengths = c_.lengths();
    return {
        {"case", c_.name},
        {"pattern", to_string(rule_.how.pattern)},
        {"tokens", lengths.keys},
        {"queries", lengths.queries},
        {"batch", c_.batch},
        {"heads", c_.heads},
        {"kv_heads", c_.k_shape()[1]},
        {"dim", c_.dim},
        {"value_dim", c_.v_shape()[3]},
        {"scale", c_.scale},
        {"softcap", c_.softcap},
        {"bias", c_.bias},
        {"dropout", c_.dropout},
        {"stats", c_.stats},
        {"dtype", "f32"},
        {"isa", context_.isa()},
        {"threads", context_.threads()},
        {"pass", pass == Pass::forward ? "forward" : "backward"},
        {"pairs", pairs_},
        {"time_ms", timing.median_ms},
        {"best_ms", timing.best_ms},
        {"spread", timing.spread},
        {"ns_per_token",
         timing.median_ms * 1e6 / static_cast<double>(lengths.queries * c_.heads * c_.batch)},
        {"gflops", flops / timing.median_ms * 1e-6},
        {"peak_gflops", timing.peak_gflops},
        {"fraction_of_peak", timing.fraction},
        {"extra_bytes", memory ? Json(std::max<Index>(0, *memory - output_bytes_)) : Json(nullptr)},
        {"output_bytes", output_bytes_}};
  }

  const Case& c_;
  const Context& context_;
  Rule rule_;
  Tensor q_, k_, v_, dout_;
  Attended y_;
  Index pairs_;
  Index output_bytes_ = 0;
};

std::vector<Pass> wanted(const BenchOptions& options, std::vector<Pass> passes) {
  if (options.described) {
    passes = {Pass::forward, Pass::backward};
    if (!options.backward) return {Pass::forward};
  }
  if (options.forward == options.backward) return passes;
  std::erase(passes, options.forward ? Pass::backward : Pass::forward);
  return passes;
}

std::vector<BenchCase> described_cases(const BenchOptions& options) {
  std::vector<BenchCase> cases;
  for (const Index tokens : options.tokens.empty() ? std::vector<Index>{4096} : options.tokens) {
    cases.push_back({options.c, wanted(options, {})});
    cases.back().c.tokens = tokens;
    cases.back().c.name = "custom";
  }
  return cases;
}

std::vector<BenchCase> cases_of(const BenchOptions& options) {
  if (options.described) return described_cases(options);
  std::vector<BenchCase> cases;
  for (const BenchCase& standard : standard_cases()) {
    const bool named = std::count(options.only.begin(), options.only.end(), standard.c.name) > 0;
    if (!options.only.empty() && !named) continue;
    cases.push_back({standard.c, wanted(options, standard.passes)});
  }
  return cases;
}

void print_header() {
  fmt::print("{:<20}{:<30}{:>9}{:>6}{:>5}{:>4}  {:<9}{:>10}{:>9}{:>9}{:>10}\n", "case", "pattern",
             "tokens", "heads", "dim", "thr", "pass", "time ms", "GFLOP/s", "of peak", "extra");
}

void print_row(const Json& row) {
  const Json& extra = row["extra_bytes"];
  fmt::print("{:<20}{:<30}{:>9}{:>6}{:>5}{:>4}  {:<9}{:>10.3f}{:>9.1f}{:>9.3f}{:>10}\n",
             row["case"].get<std::string>(), row["pattern"].get<std::string>(),
             row["tokens"].get<Index>(), row["heads"].get<Index>(), row["dim"].get<Index>(),
             row["threads"].get<Index>(), row["pass"].get<std::string>(),
             row["time_ms"].get<double>(), row["gflops"].get<double>(),
             row["fraction_of_peak"].get<double>(),
             extra.is_null() ? "?" : bytes_text(extra.get<Index>()));
  std::fflush(stdout);
}

void run(const BenchOptions& options) {
  const std::vector<BenchCase> cases = cases_of(options);
  std::vector<Json> results;
  if (!options.json) print_header();
  for (const BenchCase& bench_case : cases) {
    for (const Index threads : options.threads.empty() ? std::vector<Index>{0} : options.threads) {
      const Context context(threads, options.isa);
      progress(fmt::format("preparing {}", bench_case.c.name));
      Bench bench(bench_case.c, context);
      for (const Pass pass : bench_case.passes) {
        progress(fmt::format("measuring {}, {}, {} threads", bench_case.c.name,
                             pass == Pass::forward ? "forward" : "backward", context.threads()));
        results.push_back(bench.measure(pass, options.repeats));
        end_progress();
        if (!options.json) print_row(results.back());
      }
    }
  }
  if (options.json) print_cases(results);
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
  const auto options = std::make_shared<BenchOptions>();
  command->add_option("--tokens", options->tokens, "Number of keys, one or several")
      ->check(whole_number(1));
  add_case_options(*command, options->c);
  const auto described = command->get_options();
  CLI::Option* only =
      command->add_option("--case", options->only, "Only these of the standard cases")
          ->check(CLI::IsMember(standard_names()));
  command->add_flag("--forward", options->forward, "The forward pass");
  command->add_flag("--backward", options->backward, "The backward pass (both: give both flags)");
  command
      ->add_option("--threads", options->threads,
                   "Threads, one or several (default: RAPT_THREADS or all CPUs)")
      ->check(whole_number(1));
  command->add_option("--isa", options->isa, "Instruction set (default: RAPT_ISA or the best)");
  command->add_option("--repeat", options->repeats, "Runs, of which the median counts")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_flag("--json", options->json,
                    "Print JSON: an object for one result, an array for several");
  command->footer(
      "GFLOP/s counts the pairs the pattern allows: 4 * pairs * dim * heads forward, 10 * ... "
      "backward.\n"
      "The peak is measured before and after every run, with the same threads.\n"
      "Extra is resident memory at its highest beyond the operands and the results.");
  command->callback([options, described, only, command] {
    for (const CLI::Option* option : described)
      options->described |= option->count() > 0 && option != command->get_help_ptr();
    if (options->described && only->count() > 0)
      throw CLI::ValidationError("--case",
                                 "names a standard case and excludes options that describe one");
    run(*options);
  });
}

}  // namespace rapt::cli
