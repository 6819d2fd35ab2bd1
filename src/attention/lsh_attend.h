#pragma once

#include "rapt/attention.h"

namespace rapt {

/// attend, attend_into and attend_backward for patterns with an lsh leaf. The output goes to `into`
/// or, if that is null, to `out`, which is made.
Attended attend_lsh(const AnyMutableView* into, Tensor& out, AnyView q, AnyView k, AnyView v,
                    const Attention& how, const Context& context);
void attend_lsh_backward(const GradientViews& to, AnyView dout, AnyView q, AnyView k, AnyView v,
                         AnyView out, const Rows& rows, const Attention& how,
                         const Context& context);

}  // namespace rapt
