#include <array>
#include <memory>

#include "cli/bench/bench_report.h"
#include "cli/bench/timing.h"
#include "cli/case.h"
#include "cli/commands.h"
#include "cli/console/output.h"
#include "rapt/nn/functional.h"
#include "rapt/peak.h"

namespace rapt::cli {
namespace {

struct GemmBenchOptions : BenchOptions {
  std::vector<Index> rows = {1, 8, 64, 512, 4096};
  std::vector<Index> in, out;
  std::vector<std::string> types = {"f32"};
  std::vector<std::string> passes = {"forward"};
};

/// What one row of the report is about.
struct GemmCase {
  Index rows, in, out;
  std::string type;  // of the weight
  Pass pass;
};

/// Widths of layers people train, from small to large.
constexpr std::array<std::array<Index, 2>, 6> layer_widths = {
    {{256, 256}, {256, 1024}, {1024, 1024}, {1024, 4096}, {4096, 1024}, {4096, 4096}}};

bool is_quantized(const std::string& type) { return type.starts_with("q"); }

bool is_packed(const std::string& type) { return type.starts_with("packed"); }
bool is_bf16(const std::string& type) { return type.ends_with("bf16"); }
bool is_f16(const std::string& type) { return type.ends_with("f16") && !is_bf16(type); }

Parameter weight_of(const GemmCase& c, const Context& context) {
  const bool step = c.pass == Pass::backward;
  const Type type = is_bf16(c.type) && !step ? Type::bf16 : is_f16(c.type) ? Type::f16 : Type::f32;
  Parameter weight{.name = "weight", .value = random_tensor({c.out, c.in}, 1, type)};
  if (is_quantized(c.type)) weight.quantize(from_string<Quantization>(c.type), context);
  if (is_packed(c.type)) weight.pack(context);
  if (is_bf16(c.type) && step) weight.rounded = weight.value.converted(Type::bf16);
  return weight;
}

Index bytes_of(const Parameter& weight, const std::string& type) {
  if (!weight.quantized.empty()) return weight.quantized.bytes();
  return weight.shape().elements() * (is_bf16(type) || is_f16(type) ? 2 : 4);
}

/// The peak of the instructions that multiply such a weight.
double peak_of(const std::string& type, const Context& context) {
  const double bf16 = is_bf16(type) ? measure_bf16_gflops(peak_seconds, context) : 0;
  return bf16 > 0 ? bf16 : measure_fma_gflops(peak_seconds, context);
}

Json measure(const GemmBenchOptions& o, const GemmCase& c, const Context& context) {
  Parameter weight = weight_of(c, context);
  Tape plain(Tape::Mode::forward, context), tape(Tape::Mode::train, context);
  const Tensor x = random_tensor({c.rows, c.in}, 2);
  const Variable kept = plain.input(x.clone());
  const Tensor dy = random_tensor({c.rows, c.out}, 3);
  const bool forward = c.pass == Pass::forward;
  const auto work = [&] {
    if (forward) {
      linear(plain, kept, weight);
    } else {
      tape.backward(linear(tape, tape.input(x.clone(), true), weight), dy.clone());
    }
  };
  const double products = forward ? 1 : 3;
  const double flops = products * 2 * static_cast<double>(c.rows) * static_cast<double>(c.in) *
                       static_cast<double>(c.out);
  work();  // threads, scratch memory and the gradient's
  const Timing timing = time_against_peak(
      {.work = work, .flops = flops, .peak = [&] { return peak_of(c.type, context); }}, o.repeats);
  const auto weight_bytes = static_cast<double>(bytes_of(weight, c.type));
  return {{"case", "gemm"},
          {"pass", forward ? "forward" : "step"},
          {"rows", c.rows},
          {"in", c.in},
          {"out", c.out},
          {"dtype", c.type},
          {"isa", context.isa()},
          {"threads", context.threads()},
          {"time_us", timing.median_ms * 1e3},
          {"best_us", timing.best_ms * 1e3},
          {"spread", timing.spread},
          {"gflops", flops / timing.median_ms * 1e-6},
          {"peak_gflops", timing.peak_gflops},
          {"fraction_of_peak", timing.fraction},
          {"weight_gbytes", products * weight_bytes / timing.median_ms * 1e-6}};
}

void print_gemm_header() {
  fmt::print("{:>6}{:>6}{:>6}  {:<8}{:<12}{:>4}{:>12}{:>11}{:>11}{:>9}{:>12}\n", "rows", "in",
             "out", "pass", "type", "thr", "time us", "GFLOP/s", "peak", "of peak", "weight GB/s");
}

void print_gemm_row(const Json& row) {
  fmt::print("{:>6}{:>6}{:>6}  {:<8}{:<12}{:>4}{:>12.1f}{:>11.1f}{:>11.1f}{:>9.2f}{:>12.1f}\n",
             row["rows"].get<Index>(), row["in"].get<Index>(), row["out"].get<Index>(),
             row["pass"].get<std::string>(), row["dtype"].get<std::string>(),
             row["threads"].get<Index>(), row["time_us"].get<double>(), row["gflops"].get<double>(),
             row["peak_gflops"].get<double>(), row["fraction_of_peak"].get<double>(),
             row["weight_gbytes"].get<double>());
}

std::vector<std::array<Index, 2>> widths_of(const GemmBenchOptions& o) {
  if (o.in.empty() && o.out.empty()) return {layer_widths.begin(), layer_widths.end()};
  const std::vector<Index>& in = o.in.empty() ? o.out : o.in;
  const std::vector<Index>& out = o.out.empty() ? o.in : o.out;
  std::vector<std::array<Index, 2>> widths;
  for (const Index from : in)
    for (const Index to : out) widths.push_back({from, to});
  return widths;
}

std::vector<GemmCase> cases_of(const GemmBenchOptions& o) {
  std::vector<GemmCase> cases;
  for (const auto& [in, out] : widths_of(o))
    for (const Index rows : o.rows)
      for (const std::string& pass : o.passes)
        for (const std::string& type : o.types)
          cases.push_back(
              {rows, in, out, type, pass == "forward" ? Pass::forward : Pass::backward});
  return cases;
}

void run(const GemmBenchOptions& o) {
  BenchReport report(o, print_gemm_header, print_gemm_row);
  for (const std::optional<Index> threads : o.thread_counts())
    for (const GemmCase& c : cases_of(o)) {
      progress(fmt::format("measuring {} x {} x {}", c.rows, c.in, c.out));
      report.add(measure(o, c, Context(threads, o.isa)));
    }
  report.finish();
}

}  // namespace

void add_bench_gemm(CLI::App& bench) {
  CLI::App* command =
      bench.add_subcommand("gemm", "Time linear layers against the multiply-adds this CPU can do");
  const auto o = std::make_shared<GemmBenchOptions>();
  command->add_option("--rows", o->rows, "Rows of x, one or several")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--in", o->in, "Widths of x (default: a table of layers)")
      ->check(whole_number(1));
  command->add_option("--out", o->out, "Widths of the result (default: as --in)")
      ->check(whole_number(1));
  command
      ->add_option("--dtype", o->types,
                   "Types of the weight, one or several; a step needs f32 or bf16")
      ->check(CLI::IsMember({"f32", "packed", "bf16", "packed-bf16", "f16", "packed-f16", "q8_0",
                             "q8_1", "q4_0", "q4_1"}))
      ->capture_default_str();
  command->add_option("--pass", o->passes, "forward, or step: forward and both gradients")
      ->check(CLI::IsMember({"forward", "step"}))
      ->capture_default_str();
  add_bench_options(*command, *o);
  command->footer(
      "A layer is x [rows, in] times weight [out, in]. The peak is measured between the runs with\n"
      "the same threads: of bf16 products where bf16 is multiplied as it is, else of f32. GB/s\n"
      "counts the weight once for every product: with few rows, the time is the time to read it.");
  command->callback([o] { run(*o); });
}

}  // namespace rapt::cli
