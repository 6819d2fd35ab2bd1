#include "attention/forward/unrounded_out.h"

#include <algorithm>

#include "base/check.h"
#include "base/flush_denormals.h"
#include "base/sizes.h"
#include "kernels/context.h"

namespace rapt::detail {
namespace {

constexpr Index rows_per_task = 64;
/// Numbers that are rounded before a second thread would have woken up.
constexpr Index worth_threads = Index{1} << 15;

}  // namespace

UnroundedOut::UnroundedOut(const AnyMutableView& out, Gradients gradients) : out_(out) {
  if (gradients == Gradients::wanted && out.type() != Type::f32)
    wide_ = std::make_shared<Tensor>(Tensor::uninitialized(out.shape()));
}

AnyMutableView UnroundedOut::view() const { return wide_ ? AnyMutableView(*wide_) : out_; }

void UnroundedOut::finish(Rows& rows, const Context& context) {
  if (!wide_) return;
  const FlushDenormals guard;  // the caller may round otherwise
  const Kernels& kernels = kernels_of(context);
  const AnyView from = *wide_;
  const Index tokens = out_.tokens(), tasks_per_head = divide_up(tokens, rows_per_task);
  const auto round = [&](Index task, Index) {
    const Index item = task / tasks_per_head / out_.heads();
    const Index head = task / tasks_per_head % out_.heads();
    const Index first = task % tasks_per_head * rows_per_task;
    for (Index i = first; i < std::min(tokens, first + rows_per_task); ++i)
      kernels.vectors.store(static_cast<const float*>(from.row(item, head, i)), out_.dim(),
                            out_.type(), out_.row(item, head, i));
  };
  const Index tasks = out_.batch() * out_.heads() * tasks_per_head;
  if (wide_->elements() < worth_threads) {
    for (Index task = 0; task < tasks; ++task) round(task, 0);
  } else {
    for_each_task(context, tasks, round);
  }
  rows.out = std::move(wide_);
}

AnyView unrounded(const char* where, const AttendedView& attended) {
  const AnyView& out = attended.out;
  const Rows& rows = attended.rows;
  if (out.type() == Type::f32 || rows.out == nullptr) return out;
  check(rows.out->shape() == out.shape() && rows.out->type() == Type::f32, where,
        ": rows keep an output of shape ", rows.out->shape(), " and type ",
        to_string(rows.out->type()), ", expected ", out.shape(),
        " and f32, as attend gives with the same operands");
  return *rows.out;
}

}  // namespace rapt::detail
