#include "support/truth/bound.h"

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <sstream>

namespace rapt::test {
namespace {

struct Worst {
  double units = 0;
  Bar bar;
  std::string where;
};

std::map<std::string, Worst>& worst() {
  static std::map<std::string, Worst> all;
  return all;
}

/// Error in units; infinite where got and want are not numbers of the same kind.
double units_of(double got, const Truth& truth, std::size_t i) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double want = truth.value[i], unit = truth.unit[i];
  if (std::isnan(want) || std::isnan(got))
    return std::isnan(want) == std::isnan(got) ? 0 : infinity;
  if (std::isinf(want)) return got == want ? 0 : infinity;
  const double slack = truth.slack.empty() ? 0 : truth.slack[i];
  const double error = std::fabs(got - want) - truth.floor - slack;
  if (error <= 0) return 0;
  return unit > 0 ? error / unit : infinity;
}

/// Without a fused multiply-add every product is rounded as well.
double allowance(const std::string& where) {
  return where.ends_with("SSE4") || where.ends_with("scalar") ? 1.5 : 1;
}

constexpr Bar forward_bar{5, 1.25};
constexpr Bar backward_bar{5, 1.5};

struct Counts {
  double compared = 0, unusual = 0;
};
Counts& counts() {
  static Counts all;
  return all;
}

std::string text_of_tensor(const char* what, const Tensor& got, const Truth& want,
                           const std::string& where, Bar bar) {
  return beyond_bound(what, got.numbers(), want, where, bar);
}

/// log(sum * 2^max) in double must be as good as the logits allow: backward builds on it.
std::string beyond_row_bound(const Rows& rows, const Truth& want, const std::string& where) {
  std::ostringstream text;
  if (rows.max.size() != want.value.size() || rows.sum.size() != want.value.size()) {
    text << "rows: " << rows.max.size() << " maxima and " << rows.sum.size() << " sums, expected "
         << want.value.size() << "\n  " << where << '\n';
    return text.str();
  }
  for (std::size_t r = 0; r < want.value.size(); ++r) {
    const double max = rows.max[r], sum = rows.sum[r];
    const bool empty = max == -std::numeric_limits<double>::infinity() && !std::isnan(sum);
    const double lse = empty ? max : max * std::numbers::ln2 + std::log(sum);
    const double units = units_of(lse, want, r);
    if (units <= Bar{}.gate * allowance(where)) continue;
    text << "rows[" << r << "]: max " << max << " and sum " << sum << " give lse " << lse
         << ", expected " << want.value[r] << ", " << units << " units\n  " << where << '\n';
    break;
  }
  return text.str();
}

}  // namespace

std::string beyond_bound(const std::string& what, std::span<const float> got, const Truth& want,
                         const std::string& where, Bar bar) {
  std::ostringstream text;
  text.precision(9);
  if (got.size() != want.value.size()) {
    text << what << ": " << got.size() << " numbers, expected " << want.value.size() << "\n  "
         << where << '\n';
    return text.str();
  }
  double furthest = 0;
  std::size_t at = 0, failures = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double units = units_of(got[i], want, i);
    failures += !(units <= bar.gate * allowance(where));
    counts().unusual += !(units <= Bar::usual);
    if (units > furthest) furthest = units, at = i;
  }
  counts().compared += static_cast<double>(got.size());
  Worst& record = worst()[what];
  if (furthest > record.units || record.where.empty()) record = {furthest, bar, where};
  if (failures == 0) return {};
  text << what << "[" << at << "]: got " << got[at] << ", expected " << want.value[at] << " +- "
       << bar.gate * want.unit[at] + want.floor << " (" << furthest << " units, gate " << bar.gate
       << "); " << failures << " of " << got.size() << " elements fail\n  " << where << '\n';
  return text.str();
}

std::string beyond_bound(View out, const Attended& got, const Defined& want,
                         const std::string& where) {
  const Doubles copy = doubles(out);
  const std::vector<float> numbers(copy.begin(), copy.end());
  return beyond_bound("out", numbers, want.out, where, forward_bar) +
         text_of_tensor("lse", got.lse, want.lse, where, Bar{}) +
         beyond_row_bound(got.rows, want.row_lse, where) +
         (got.stats ? beyond_bound(*got.stats, want, where) : "");
}

std::string beyond_bound(const Attended& got, const Defined& want, const std::string& where) {
  return beyond_bound(got.out.view(), got, want, where);
}

std::string beyond_bound(const Stats& got, const Defined& want, const std::string& where) {
  std::vector<float> squares;
  for (const float norm : got.jacobian_norm.numbers()) squares.push_back(norm * norm);
  return text_of_tensor("entropy", got.entropy, want.entropy, where, Bar{}) +
         text_of_tensor("largest", got.largest, want.largest, where, Bar{}) +
         text_of_tensor("logit_variance", got.logit_variance, want.logit_variance, where, Bar{}) +
         text_of_tensor("reach", got.reach, want.reach, where, Bar{}) +
         text_of_tensor("sink_mass", got.sink_mass, want.sink_mass, where, Bar{}) +
         beyond_bound("jacobian_norm^2", squares, want.jacobian_square, where, Bar{});
}

std::string beyond_bound(const Gradients& got, const DefinedGradients& want,
                         const std::string& where) {
  std::string text;
  const auto compare = [&](const char* what, const Tensor& part, const Truth& truth) {
    text += text_of_tensor(what, part, truth, where, backward_bar);
  };
  compare("dq", got.dq, want.dq);
  compare("dk", got.dk, want.dk);
  compare("dv", got.dv, want.dv);
  compare("dslopes", got.dslopes, want.dslopes);
  compare("dkerple", got.dkerple, want.dkerple);
  compare("dtable", got.dtable, want.dtable);
  compare("drelative_keys", got.drelative_keys, want.drelative_keys);
  compare("drelative_values", got.drelative_values, want.drelative_values);
  compare("ddense", got.ddense, want.ddense);
  compare("dsinks", got.dsinks, want.dsinks);
  return text;
}

double unusual_share() { return counts().compared == 0 ? 0 : counts().unusual / counts().compared; }

std::string worst_report() {
  std::ostringstream text;
  for (const auto& [what, record] : worst())
    text << "worst " << what << ": " << record.units << " units (goal " << record.bar.goal
         << ", gate " << record.bar.gate << ") at " << record.where.substr(0, 300) << '\n';
  return text.str();
}

std::string different_bits(const std::string& what, std::span<const float> got,
                           std::span<const float> want) {
  std::ostringstream text;
  text.precision(9);
  if (got.size() != want.size())
    text << what << ": " << got.size() << " numbers, expected " << want.size() << '\n';
  for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i)
    if (std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(want[i])) {
      text << what << "[" << i << "]: " << got[i] << " and " << want[i] << " differ in bits\n";
      break;
    }
  return text.str();
}

namespace {

/// small or operands: q, k, v, dout and how.
template <class Given>
std::string beyond_bound_of(const Given& given, const std::string& what) {
  const Problem p = problem(given.q, given.k, given.v, given.how);
  const Defined want = define(p);
  const DefinedGradients want_gradients = define_gradients(p, doubles(given.dout));
  std::string text;
  for (const Context& context : every_isa()) {
    const Answer got = run(given.dout, given.q, given.k, given.v, given.how, context);
    const std::string where = what + " on " + context.isa();
    text += beyond_bound(got.forward, want, where);
    text += beyond_bound(got.backward, want_gradients, where);
  }
  return text;
}

}  // namespace

std::string beyond_bound(const Small& small, const std::string& what) {
  return beyond_bound_of(small, what);
}
std::string beyond_bound(const Operands& operands, const std::string& what) {
  return beyond_bound_of(operands, what);
}

std::string different_bits(const Attended& got, const Attended& want) {
  std::string text = different_bits("out", got.out.numbers(), want.out.numbers()) +
                     different_bits("lse", got.lse.numbers(), want.lse.numbers()) +
                     different_bits("rows.max", got.rows.max, want.rows.max);
  for (std::size_t r = 0; r < std::min(got.rows.sum.size(), want.rows.sum.size()); ++r)
    if (std::bit_cast<std::uint64_t>(got.rows.sum[r]) !=
        std::bit_cast<std::uint64_t>(want.rows.sum[r])) {
      text += "rows.sum[" + std::to_string(r) + "] differs in bits\n";
      break;
    }
  if (!got.stats || !want.stats) return text;
  using Part = Tensor Stats::*;
  for (const Part part : {&Stats::entropy, &Stats::largest, &Stats::logit_variance,
                          &Stats::jacobian_norm, &Stats::reach, &Stats::sink_mass})
    text +=
        different_bits("stats", ((*got.stats).*part).numbers(), ((*want.stats).*part).numbers());
  return text;
}

std::string different_bits(const Gradients& got, const Gradients& want) {
  using Part = Tensor Gradients::*;
  std::string text;
  for (const auto& [name, part] : std::initializer_list<std::pair<const char*, Part>>{
           {"dq", &Gradients::dq},
           {"dk", &Gradients::dk},
           {"dv", &Gradients::dv},
           {"dslopes", &Gradients::dslopes},
           {"dkerple", &Gradients::dkerple},
           {"drelative_values", &Gradients::drelative_values},
           {"dtable", &Gradients::dtable},
           {"drelative_keys", &Gradients::drelative_keys},
           {"ddense", &Gradients::ddense},
           {"dsinks", &Gradients::dsinks}})
    text += different_bits(name, (got.*part).numbers(), (want.*part).numbers());
  return text;
}

}  // namespace rapt::test
