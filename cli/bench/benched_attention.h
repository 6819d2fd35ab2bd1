#pragma once

#include <optional>

#include "cli/case.h"
#include "cli/console/output.h"

namespace rapt::cli {

/// Operands of a case and the calls to measure.
class BenchedAttention {
 public:
  BenchedAttention(const Case& c, const Context& context);

  /// Time against the peak; `extra_bytes` is reported as given.
  Json measure(Pass pass, int repeats, std::optional<Index> extra_bytes);

  /// Resident memory of the first call in a fresh process at its highest, beyond operands and
  /// results; nothing if the system does not let us ask.
  ///
  /// Later calls find scratch memory that earlier ones left, and would look cheaper than they are.
  static std::optional<Index> extra_bytes(const Case& c, const Context& context, Pass pass);

 private:
  Tensor operand(const Shape& shape, std::uint64_t seed) const;
  Index run(Pass pass) const;
  double peak() const;
  void prepare_backward();
  void prepare_backward_in_child();
  Index first_call_bytes(Pass pass);

  Case c_;
  Context context_;
  Rule rule_;
  Tensor q_, k_, v_, dout_;
  Tensor out_;
  AnyView out_view_;
  Rows rows_;
  Index pairs_;
  Index output_bytes_ = 0;
};

}  // namespace rapt::cli
