#pragma once

#include <list>
#include <memory>
#include <type_traits>

#include "python/src/convert/array.h"
#include "python/src/convert/errors.h"
#include "rapt/attention.h"

namespace rapt::python {

/// The options of one call as they come from Python: a tuple in the order of Field, None standing
/// for the default. It keeps the arrays that the attention borrows.
class CallOptions {
 public:
  explicit CallOptions(nb::tuple options);

  const Attention& attention() const { return attention_; }
  Attention& attention() { return attention_; }
  const Context& context() const { return context_; }

 private:
  enum class Field {
    pattern,
    scale,
    softcap,
    bias,
    relative_values,
    rotations,
    sinks,
    dropout,
    seed,
    strict,
    context,
    count
  };
  void take_pattern(nb::handle given);
  void take_softcap(nb::handle given);
  void take_bias(nb::handle given);
  View table(nb::handle given, const char* name, Index rank);

  std::list<Array> arrays_;  // views point into their copies, so they must not move
  Attention attention_;
  Context context_;
};

/// TypeError for a PyTorch tensor, whose gradient a number would lose.
void refuse_tensor(nb::handle given, const char* name);
/// A number of the caller's; TypeError if it is none.
template <class T>
T number(nb::handle given, const char* name) {
  if constexpr (std::is_floating_point_v<T>) refuse_tensor(given, name);
  T value;
  if (!nb::try_cast(given, value))
    wrong_type(name, " is ", nb::repr(given).c_str(), ", expected ",
               std::is_integral_v<T> ? "a whole number" : "a number");
  return value;
}
/// None: the defaults of the process.
Context context_of(nb::handle given);
/// Whether it is read as an array, and not as a sequence.
bool is_array(nb::handle given);
/// A pattern, its text, or a plan of it.
Pattern pattern_of(nb::handle given);
/// None, a number, a Scale or a name.
Scale scale_of(nb::handle given);
/// An array or a sequence of numbers, one for each head.
std::vector<float> floats_of(nb::handle given, const char* name);
std::vector<Index> indices_of(nb::handle given, const char* name);
/// Four sizes of an operand that is only talked about.
Shape shape_of(const std::vector<Index>& sizes, const char* name);

}  // namespace rapt::python
