#include <cmath>

#include "base/check.h"
#include "positions/rope_angles.h"

namespace rapt::detail {
namespace {

void check_factor(const char* what, double factor) {
  check(std::isfinite(factor) && factor > 0, "rope: ", what, " is ", factor,
        ", expected a finite number above 0");
}

void check_trained(Index tokens) {
  check(tokens >= 2, "rope: trained_tokens is ", tokens, ", expected 2 or more");
}

void check_attention_factor(const std::optional<double>& factor) {
  if (factor) check_factor("attention_factor", *factor);
}

void check_base_change(const char* name, Index channels) {
  check(channels > 2, "rope: ", name, " needs more than the ", channels,
        " rotated channels given, expected at least 4");
}

/// One check for each kind of scaling.
struct CheckScaling {
  Index channels;

  void operator()(const std::monostate&) const {}
  void operator()(const LinearRope& s) const { check_factor("the linear factor", s.factor); }
  void operator()(const NtkRope& s) const {
    check_factor("the NTK factor", s.factor);
    check_base_change("NTK scaling", channels);
  }
  void operator()(const DynamicNtkRope& s) const {
    check(std::isfinite(s.factor) && s.factor >= 1, "rope: the dynamic NTK factor is ", s.factor,
          ", expected a finite number of at least 1");
    check_trained(s.trained_tokens);
    check_base_change("dynamic NTK scaling", channels);
  }
  void operator()(const YarnRope& s) const {
    check_factor("the YaRN factor", s.factor);
    check_trained(s.trained_tokens);
    check_factor("YaRN's slow", s.slow);
    check(std::isfinite(s.fast) && s.fast >= s.slow, "rope: YaRN's fast is ", s.fast,
          ", expected a finite number of at least slow, ", s.slow);
    check_factor("YaRN's mscale", s.mscale.value_or(1));
    check_factor("YaRN's mscale_all_dim", s.mscale_all_dim.value_or(1));
    check_attention_factor(s.attention_factor);
  }
  void operator()(const Llama3Rope& s) const {
    check_factor("the Llama 3 factor", s.factor);
    check_trained(s.trained_tokens);
    check_factor("Llama 3's low", s.low);
    check(std::isfinite(s.high) && s.high > s.low, "rope: Llama 3's high is ", s.high,
          ", expected a finite number above low, ", s.low);
  }
  void operator()(const LongRope& s) const {
    check_trained(s.trained_tokens);
    check_factor("the LongRoPE factor", s.factor);
    check_attention_factor(s.attention_factor);
    check_divisors("short_factors", s.short_factors);
    check_divisors("long_factors", s.long_factors);
  }

  void check_divisors(const char* name, const std::vector<double>& divisors) const {
    check(static_cast<Index>(divisors.size()) == channels / 2, "rope: ", divisors.size(), " ", name,
          " given, expected one for each of ", channels / 2, " pairs");
    for (const double divisor : divisors) check_factor(name, divisor);
  }
};

void check_sections(const RopeOptions& options, Index channels) {
  if (options.sections.pairs.empty()) return;
  Index sum = 0;
  for (const Index pairs : options.sections.pairs) {
    check(0 <= pairs && pairs <= channels / 2, "rope: a section of ", pairs,
          " pairs given, expected 0 to ", channels / 2);
    sum += pairs;
  }
  check(sum == channels / 2, "rope: the sections have ", sum, " pairs together, expected ",
        channels / 2, " (half the rotated channels)");
  check(options.sections.order != RopeSections::Order::restarted ||
            std::holds_alternative<std::monostate>(options.scaling),
        "rope: sections with restarted frequencies and a scaling given, expected one of the two");
}

}  // namespace

Index paired_channels(const RopeOptions& options) {
  return options.proportional ? options.dim : options.rotated.value_or(options.dim);
}

void check_rope_options(const RopeOptions& options) {
  check(1 <= options.dim && options.dim <= (Index{1} << 20), "rope: dim is ", options.dim,
        ", expected 1 to 2^20");
  const Index rotated = options.rotated.value_or(2);
  check(rotated >= 2 && rotated % 2 == 0 && (!options.rotated || rotated <= options.dim),
        "rope: ", rotated, " rotated channels of ", options.dim,
        " given, expected an even number, at least 2 and at most dim");
  const Index channels = paired_channels(options);
  check(channels % 2 == 0, "rope: all ", channels,
        " channels cannot form pairs, expected an even dim or an even number of rotated channels");
  check(std::isfinite(options.base) && options.base > 1, "rope: base is ", options.base,
        ", expected a finite number above 1");
  std::visit(CheckScaling{channels}, options.scaling);
  check_sections(options, channels);
  if (!options.xpos) return;
  check_factor("xPos's scale_base", options.xpos->scale_base);
  check(options.sections.pairs.empty(),
        "rope: xPos and sections given, expected one of the two: xPos knows one axis");
}

}  // namespace rapt::detail
