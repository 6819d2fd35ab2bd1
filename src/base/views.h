#pragma once

#include "rapt/tensor.h"

namespace rapt::detail {

// What the views of a caller must be; `where` opens the message of a std::invalid_argument.

/// Throws unless the elements of `view` can be there at all: strides, size, pointer, alignment.
void check_memory(const char* where, const char* name, const AnyView& view);
/// Throws unless `view` is a [batch, heads, tokens, dim] operand with a contiguous last axis.
void check_readable(const char* where, const char* name, const AnyView& view);
/// Throws unless `view` is such an operand of this shape.
void check_operand(const char* where, const char* name, const AnyView& view, const Shape& shape);
/// Throws unless `view` can be written: right shape, contiguous last axis, no element twice.
void check_output(const char* where, const char* name, const AnyMutableView& view,
                  const Shape& shape);
/// Throws if the memory of `out` and `in` overlaps.
void check_apart(const char* where, const AnyMutableView& out, const AnyView& in, const char* name);

}  // namespace rapt::detail
