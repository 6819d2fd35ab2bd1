#pragma once

#include <memory>

#include "rapt/attention.h"

namespace rapt::detail {

/// Where a forward pass writes its output. Backward takes sum(dout * out) of each row, which
/// cancels against the gradients of its largest probabilities: from an output of 16 bits it would
/// be too rough. Such an output is written in f32 first, rounded at the end, and kept in Rows.
class UnroundedOut {
 public:
  enum class Gradients { wanted, not_wanted };
  UnroundedOut(const AnyMutableView& out, Gradients gradients);

  AnyMutableView view() const;
  /// Rounds into the output and moves the f32 numbers to `rows`.
  void finish(Rows& rows, const Context& context);

 private:
  AnyMutableView out_;
  std::shared_ptr<Tensor> wide_;  // null: the output itself is written
};

/// Of an Attention, Longformer, BigBird or ReformerLocal.
template <class How>
UnroundedOut::Gradients gradients_of(const How& how) {
  return how.gradients ? UnroundedOut::Gradients::wanted : UnroundedOut::Gradients::not_wanted;
}

/// The output as exact as the caller has it. Throws std::invalid_argument if its rows keep one of
/// another shape.
AnyView unrounded(const char* where, const AttendedView& attended);

}  // namespace rapt::detail
