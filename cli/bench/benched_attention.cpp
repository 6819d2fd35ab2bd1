#include "cli/bench/benched_attention.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "cli/bench/child_process.h"
#include "cli/bench/timing.h"
#include "rapt/lsh.h"
#include "rapt/peak.h"

namespace rapt::cli {
namespace {

Index bytes_of(const Tensor& tensor) {
  return static_cast<Index>(size_of(tensor.type())) * tensor.elements();
}

Index bytes_of(const Attended& y) {
  Index bytes = bytes_of(y.out) + bytes_of(y.lse) + std::ssize(y.rows.max) * Index{sizeof(float)} +
                std::ssize(y.rows.sum) * Index{sizeof(double)} +
                (y.rows.out ? bytes_of(*y.rows.out) : 0);
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

Index pairs_of(const Pattern& pattern, Lengths lengths) {
  if (const std::optional<Lsh> hashed = lsh_part(pattern)) return lsh_pairs(*hashed, lengths.keys);
  return Plan(pattern, lengths).pairs();
}

}  // namespace

BenchedAttention::BenchedAttention(const Case& c, const Context& context)
    : c_(c),
      context_(context),
      rule_(rule_of(c)),
      q_(operand(c.q_shape(), 1)),
      k_(operand(c.k_shape(), 2)),
      v_(operand(c.v_shape(), 3)),
      pairs_(pairs_of(rule_.how.pattern, c.lengths())) {}

Tensor BenchedAttention::operand(const Shape& shape, std::uint64_t seed) const {
  return random_tensor(shape, seed, from_string<Type>(c_.dtype));
}

Index BenchedAttention::run(Pass pass) const {
  if (pass == Pass::forward) return bytes_of(attend(q_, k_, v_, rule_.how, context_));
  return bytes_of(attend_backward(dout_, q_, k_, v_, {out_view_, rows_}, rule_.how, context_));
}

void BenchedAttention::prepare_backward() {
  if (!dout_.empty()) return;
  dout_ = operand(c_.out_shape(), 4);
  Attended y = attend(q_, k_, v_, rule_.how, context_);
  out_ = std::move(y.out);
  out_view_ = out_;
  rows_ = std::move(y.rows);
}

/// Leaves this process as if forward had never run in it.
void BenchedAttention::prepare_backward_in_child() {
  dout_ = operand(c_.out_shape(), 4);
  out_ = Tensor(c_.out_shape());  // f32, which is what rows would keep of 16 bits
  out_view_ = out_;
  const Index rows = c_.batch * c_.heads * c_.lengths().queries;
  SharedBytes shared(8 * rows + 4 * rows + bytes_of(out_));
  const std::span<double> sum = shared.numbers<double>(0, rows);
  const std::span<float> max = shared.numbers<float>(8 * rows, rows);
  const std::span<std::byte> out = shared.numbers<std::byte>(12 * rows, bytes_of(out_));
  in_child([&] {
    Tensor wide(c_.out_shape());
    const Attended y = attend_into(wide, q_, k_, v_, rule_.how, context_);
    std::copy(y.rows.sum.begin(), y.rows.sum.end(), sum.begin());
    std::copy(y.rows.max.begin(), y.rows.max.end(), max.begin());
    std::memcpy(out.data(), wide.memory(), out.size());
    return 0;
  });
  std::memcpy(out_.memory(), out.data(), out.size());
  rows_.max.assign(max.begin(), max.end());
  rows_.sum.assign(sum.begin(), sum.end());
}

Index BenchedAttention::first_call_bytes(Pass pass) {
  constexpr Index unknown = -1;
  if (pass == Pass::backward) prepare_backward_in_child();
  const std::optional<Index> peak = peak_memory_of([&] { output_bytes_ = run(pass); });
  return peak ? std::max<Index>(0, *peak - output_bytes_) : unknown;
}

std::optional<Index> BenchedAttention::extra_bytes(const Case& c, const Context& context,
                                                   Pass pass) {
  const std::optional<Index> bytes =
      in_child([&] { return BenchedAttention(c, context).first_call_bytes(pass); });
  return bytes && *bytes >= 0 ? bytes : std::nullopt;
}

/// The peak of what multiplies this case's operands.
double BenchedAttention::peak() const {
  const double bf16 = c_.dtype == "bf16" ? measure_bf16_gflops(peak_seconds, context_) : 0;
  return bf16 > 0 ? bf16 : measure_fma_gflops(peak_seconds, context_);
}

Json BenchedAttention::measure(Pass pass, int repeats, std::optional<Index> extra_bytes) {
  if (pass == Pass::backward) prepare_backward();
  const double flops = flops_of(c_, pairs_, pass);
  Contest contest{
      .work = [&] { output_bytes_ = run(pass); }, .flops = flops, .peak = [&] { return peak(); }};
  std::optional<BenchedAttention> in_f32;
  if (c_.dtype != "f32") {
    Case twin = c_;
    twin.dtype = "f32";
    in_f32.emplace(twin, context_);
    if (pass == Pass::backward) in_f32->prepare_backward();
    contest.rival = [&] { in_f32->run(pass); };
  }
  contest.work();
  const Timing timing = time_against_peak(contest, repeats);
  const Lengths lengths = c_.lengths();
  return {{"case", c_.name},
          {"pattern", to_string(rule_.how.pattern)},
          {"tokens", lengths.keys},
          {"queries", lengths.queries},
          {"batch", c_.batch},
          {"heads", c_.heads},
          {"kv_heads", c_.k_shape()[1]},
          {"dim", c_.dim},
          {"value_dim", c_.v_shape()[3]},
          {"scale", c_.scale},
          {"softcap", c_.softcap ? Json(*c_.softcap) : Json(nullptr)},
          {"bias", c_.bias ? Json(*c_.bias) : Json()},
          {"sinks", c_.sinks},
          {"dropout", c_.dropout},
          {"stats", c_.stats},
          {"dtype", c_.dtype},
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
          {"times_f32", in_f32 ? Json(timing.speedup) : Json(nullptr)},
          {"extra_bytes", extra_bytes ? Json(*extra_bytes) : Json(nullptr)},
          {"output_bytes", output_bytes_}};
}

}  // namespace rapt::cli
