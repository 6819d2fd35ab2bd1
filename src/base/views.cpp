#include "base/views.h"

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"

namespace rapt::detail {
namespace {

/// Bytes from the first to the last element, or nothing if that does not fit 64 bits.
std::optional<Index> extent_bytes(const AnyView& view) {
  Index span = 1;
  for (Index axis = 0; axis < view.shape().rank(); ++axis) {
    const Index stride = view.stride(axis);
    Index step = 0;
    if (stride == std::numeric_limits<Index>::min() ||
        __builtin_mul_overflow(view.size(axis) - 1, std::abs(stride), &step) ||
        __builtin_add_overflow(span, step, &span))
      return std::nullopt;
  }
  Index bytes = 0;
  if (__builtin_mul_overflow(span, static_cast<Index>(size_of(view.type())), &bytes))
    return std::nullopt;
  return bytes;
}

/// First and one past the last address of a view that has elements.
struct Extent {
  std::uintptr_t begin, end;
};

template <class View>
Extent extent(const View& view) {
  Index low = 0;
  Index high = 0;
  for (Index axis = 0; axis < view.shape().rank(); ++axis) {
    const Index reach = (view.size(axis) - 1) * view.stride(axis);
    (reach < 0 ? low : high) += reach;
  }
  const auto base = reinterpret_cast<std::uintptr_t>(view.data());
  const auto bytes = [&](Index numbers) {
    return static_cast<std::uintptr_t>(numbers) * size_of(view.type());
  };
  return {base + bytes(low), base + bytes(high + 1)};
}

/// True if two different indices of the view name one element. Sorting axes by stride, each must
/// step over all smaller ones.
bool repeats_elements(const AnyView& view) {
  Index least = 1;  // what an axis must step over if they are sorted already, as they mostly are
  bool nested = true;
  for (Index axis = view.shape().rank() - 1; axis >= 0; --axis) {
    nested &= view.stride(axis) >= least;
    least = view.stride(axis) * view.size(axis);
  }
  if (nested) return false;
  Index covered = 1;
  Shape order = view.strides();
  Shape sizes = view.shape();
  for (Index i = 0; i < order.rank(); ++i) {
    for (Index j = i + 1; j < order.rank(); ++j) {
      if (std::abs(order[j]) < std::abs(order[i])) {
        std::swap(order[i], order[j]);
        std::swap(sizes[i], sizes[j]);
      }
    }
  }
  for (Index axis = 0; axis < order.rank(); ++axis) {
    if (sizes[axis] == 1) continue;
    if (std::abs(order[axis]) < covered) return true;
    covered = std::abs(order[axis]) * (sizes[axis] - 1) + covered;
  }
  return false;
}

/// The same, true if there are elements at all.
bool has_memory(const char* where, const char* name, const AnyView& view) {
  check(view.shape().rank() == view.strides().rank(), where, ": ", name, " has shape ",
        view.shape(), " but strides ", view.strides());
  if (view.shape().elements() == 0) return false;
  if (!extent_bytes(view)) {
    fail(where, ": ", name, " with shape ", view.shape(), " and strides ", view.strides(),
         " reaches beyond 64 bits, expected memory that can exist");
  }
  check(view.data() != nullptr, where, ": ", name, " has shape ", view.shape(),
        " but no memory (null pointer)");
  if (reinterpret_cast<std::uintptr_t>(view.data()) % size_of(view.type()) != 0) {
    fail(where, ": ", name, " is not aligned to ", size_of(view.type()), " bytes, as ",
         to_string(view.type()), " numbers must be");
  }
  return true;
}

bool is_readable(const char* where, const char* name, const AnyView& view) {
  check(view.shape().rank() == 4, where, ": ", name, " has shape ", view.shape(),
        ", expected [batch, heads, tokens, dim]");
  if (!has_memory(where, name, view)) return false;
  check(view.dim() == 1 || view.stride(3) == 1, where, ": the last axis of ", name, " has stride ",
        view.stride(3), ", expected 1 (contiguous)");
  return true;
}

bool is_operand(const char* where, const char* name, const AnyView& view, const Shape& shape) {
  const bool readable = is_readable(where, name, view);
  check(view.shape() == shape, where, ": ", name, " has shape ", view.shape(), ", expected ",
        shape);
  return readable;
}

template <class View>
bool is_empty(const View& view) {
  bool empty = view.shape().rank() == 0;
  for (Index axis = 0; axis < view.shape().rank(); ++axis) empty |= view.size(axis) == 0;
  return empty;
}

}  // namespace

void check_memory(const char* where, const char* name, const AnyView& view) {
  has_memory(where, name, view);
}

void check_readable(const char* where, const char* name, const AnyView& view) {
  is_readable(where, name, view);
}

void check_operand(const char* where, const char* name, const AnyView& view, const Shape& shape) {
  is_operand(where, name, view, shape);
}

void check_output(const char* where, const char* name, const AnyMutableView& view,
                  const Shape& shape) {
  const AnyView out = view;
  if (is_operand(where, name, out, shape) && repeats_elements(out)) {
    fail(where, ": ", name, " with strides ", view.strides(),
         " has elements that share memory, expected each element once");
  }
}

void check_apart(const char* where, const AnyMutableView& out, const AnyView& in,
                 const char* name) {
  if (is_empty(out) || is_empty(in)) return;
  const Extent a = extent(out);
  const Extent b = extent(in);
  check(a.end <= b.begin || b.end <= a.begin, where, ": out overlaps the memory of ", name,
        ", expected memory of its own");
}

}  // namespace rapt::detail
