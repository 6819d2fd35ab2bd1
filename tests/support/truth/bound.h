#pragma once

#include <span>
#include <string>

#include "rapt/attention.h"
#include "support/engine.h"
#include "support/truth/definition.h"

namespace rapt::test {

/// Units of error (definition.h): no element may be beyond the gate, hardly any beyond `usual`, and
/// the goal is what we aim at. The gate was frozen with the real kernels: on inputs made to hurt
/// (every term of a dot product alike, logits of several hundred) single elements reach 3.1 units
/// (4.3 over 4,356 fuzzed cases), because a logit of size S takes four or five roundings before
/// exp2 sees it.
struct Bar {
  double gate = 5;
  double goal = 1;
  static constexpr double usual = 2;
};

/// Share of all elements compared so far beyond Bar::usual.
double unusual_share();

/// "" if every element is within the bar of the truth, else which one is furthest out, with its
/// numbers. A NaN must be answered by a NaN, an infinity by the same one.
std::string beyond_bound(const std::string& what, std::span<const float> got, const Truth& want,
                         const std::string& where, Bar bar = {});

/// The same for everything attend and attend_backward return; a line per part that fails.
std::string beyond_bound(const Attended& got, const Defined& want, const std::string& where);
std::string beyond_bound(const Gradients& got, const DefinedGradients& want,
                         const std::string& where);
/// attend_into's form: the output is elsewhere.
std::string beyond_bound(View out, const Attended& got, const Defined& want,
                         const std::string& where);
/// Whatever the engine answers, forward and backward, on every instruction set.
std::string beyond_bound(const Small& small, const std::string& what);
std::string beyond_bound(const Operands& operands, const std::string& what);
std::string beyond_bound(const Stats& got, const Defined& want, const std::string& where);

/// The largest error seen of each quantity since the program started, in units, and where.
std::string worst_report();

/// Same bits, NaN included; "" or the first element that differs.
std::string different_bits(const std::string& what, std::span<const float> got,
                           std::span<const float> want);
std::string different_bits(const Attended& got, const Attended& want);
std::string different_bits(const Gradients& got, const Gradients& want);

}  // namespace rapt::test

// For programs that include gtest. EXPECT_SILENT(text) << more: fails with the text if there is
// one.
#define EXPECT_SILENT(text)                                        \
  GTEST_AMBIGUOUS_ELSE_BLOCKER_                                    \
  if (const std::string rapt_text_ = (text); rapt_text_.empty()) { \
  } else                                                           \
    ADD_FAILURE() << rapt_text_

#define EXPECT_WITHIN_BOUND(...) EXPECT_SILENT(::rapt::test::beyond_bound(__VA_ARGS__))
#define EXPECT_SAME_BITS(...) EXPECT_SILENT(::rapt::test::different_bits(__VA_ARGS__))
