#pragma once

#include "rapt/context.h"
#include "rapt/dropout_key.h"
#include "rapt/tensor.h"

namespace rapt::detail {

/// to += more, both f32 and row-major of one shape.
void add_to(Tensor& to, const Tensor& more, const Context& context);
/// x *= factor, rounded to f32.
void scale_in_place(Tensor& x, double factor, const Context& context = {});

/// What `drop` makes of a copy of f32 numbers, in one pass.
Tensor dropped(const Tensor& x, double rate, const DropoutKey& key, const Context& context = {});

}  // namespace rapt::detail
