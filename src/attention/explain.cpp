#include <sstream>

#include "attention/call.h"
#include "attention/forward.h"
#include "kernels/bf16_units.h"
#include "rapt/attention.h"

namespace rapt {
namespace {

std::string score_text(const Call& call) {
  std::string text = "softmax of scaled products";
  if (call.relative) text += ", relative keys";
  if (call.relative_values) text += ", relative values";
  if (call.rule.has_softcap()) text += ", soft-cap";
  if (call.rule.has_diagonal()) text += ", bias by relative position";
  if (call.rule.has_dense()) text += ", dense bias";
  if (call.rule.has_sinks()) text += ", sinks";
  if (call.rule.has_dropout()) text += ", dropout";
  return text;
}

/// Why bf16 operands are not multiplied as they are.
std::string why_widened(const Call& call) {
  if (call.kernels.pairs == nullptr) {
    return amx().usable ? std::string("AMX is there, but not in ") + call.kernels.name
                        : amx().why_not;
  }
  return call.how.stats ? "statistics need exact probabilities"
                        : "relative keys and values are tables of f32";
}

std::string operand_text(const Call& call) {
  const Type type = call.q.type();
  if (type == Type::f32) return "f32";
  if (call.pairs != nullptr) {
    return rapt::text(type) + std::string(", multiplied as they are by ") + call.pairs->engine +
           ", summed in f32; probabilities rounded to bf16";
  }
  return rapt::text(type) + ", widened to f32 where they are packed; results rounded once" +
         (type == Type::bf16 ? "; " + why_widened(call) : "");
}

std::string kernel_text(const Call& call) {
  return call.pairs == nullptr
             ? "fused f32, exact online softmax, f64 row sums and accumulators"
             : "fused bf16, online softmax of rounded probabilities, f64 row sums and accumulators";
}

}  // namespace

std::string explain(const Shape& q, const Shape& k, const Shape& v, const Attention& how,
                    const Context& context, Type type) {
  const Call call("explain", stand_in(q, type), stand_in(k, type), stand_in(v, type), how, context);
  const Plan& plan = *call.plan;
  const Index visited = plan.whole_tiles() + plan.masked_tiles();
  std::ostringstream text;
  text << "kernel    " << kernel_text(call) << "\n"
       << "operands  " << operand_text(call) << "\n"
       << "isa       " << call.kernels.name << ", " << call.kernels.lanes << " lanes, micro-kernel "
       << strip << " x " << call.kernels.panel << "\n"
       << "tiles     " << tile << " queries x " << tile << " keys; " << visited << " of "
       << plan.query_tiles() * plan.key_tiles() << " visited, " << plan.whole_tiles() << " whole, "
       << plan.masked_tiles() << " masked\n"
       << "pairs     " << plan.pairs() << " of " << call.queries * call.keys << " for each of "
       << call.batch * call.heads << " heads\n"
       << "score     " << score_text(call) << "\n"
       << "tasks     " << call.batch * call.heads * divide_up(plan.query_tiles(), forward_group)
       << " (batch item, head, " << forward_group
       << " query tiles), head after head, longest first\n"
       << "threads   " << context.threads() << "\n";
  return text.str();
}

}  // namespace rapt
