#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rapt/context.h"
#include "rapt/nn/quantized_matrix.h"
#include "rapt/tensor.h"

namespace rapt {

namespace detail {
class PackedMatrix;
}

/// A weight that is trained, and its gradient in the current step.
struct RAPT_API Parameter {
  std::string name;
  Tensor value;          // f32; a matrix that is not trained may be bf16 or f16
  Tensor gradient = {};  // f32, of the same shape; empty: nothing has been added yet
  bool decays = true;    // matrices do, biases and gains of norms do not
  Tensor rounded = {};   // `value` in 16 bits, which products read instead; empty: they read value
  /// A matrix instead of `value`, which is empty then. For tapes that do not record: it cannot be
  /// trained.
  QuantizedMatrix quantized = {};
  /// The same elements in the order in which products read them, also instead of `value`. Call
  /// unpack() before a tape records.
  std::shared_ptr<const detail::PackedMatrix> packed = {};

  Shape shape() const;
  /// The type of its elements, packed or not; f32 if it is quantized.
  Type type() const;
  /// What products read unless it is quantized or packed.
  const Tensor& used() const { return rounded.empty() ? value : rounded; }
  /// Rounds the value, a matrix, and frees it.
  void quantize(Quantization type, const Context& context = {});
  /// For products without gradients: the value, a matrix, is packed for the context's instruction
  /// set and freed. unpack() gives it back as it was, and does nothing if it is not packed.
  void pack(const Context& context = {});
  void unpack();

  /// The gradient to add to, zeros at first. Throws std::invalid_argument if it is quantized or
  /// packed.
  Tensor& gradient_or_zeros();
};

/// Where the gradient of a variable is added up. A handle without the value: an operation that does
/// not need the value of its input for backward keeps only this, and the value is freed.
class RAPT_API GradientSlot {
 public:
  GradientSlot() = default;
  /// Whether backward needs it.
  bool tracked() const { return state_ != nullptr; }
  bool operator==(const GradientSlot&) const = default;  // the very same
  /// The first addition only moves. Nothing happens if it is not tracked.
  void add(Tensor more) const;

 private:
  friend class Tape;
  friend class Variable;
  struct State {
    Shape shape;
    Context context;  // of the tape
    Tensor sum = {};
  };
  explicit GradientSlot(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// A tensor that takes part in a forward pass. A handle: copies share its elements.
class RAPT_API Variable {
 public:
  Variable() = default;
  const Tensor& value() const { return *value_; }
  const Shape& shape() const { return value_->shape(); }
  bool empty() const { return value_ == nullptr; }
  const GradientSlot& slot() const { return slot_; }
  bool tracked() const { return slot_.tracked(); }
  /// The gradient of an input, after backward. Throws std::invalid_argument if there is none.
  const Tensor& gradient() const;

 private:
  friend class Tape;
  Variable(std::shared_ptr<Tensor> value, GradientSlot slot)
      : value_(std::move(value)), slot_(std::move(slot)) {}
  std::shared_ptr<Tensor> value_;
  GradientSlot slot_;
};

/// What forward did, for backward: a list of operations in the order they ran. What an operation
/// keeps is freed as soon as backward has passed it.
class RAPT_API Tape {
 public:
  enum class Mode {
    forward,  // nothing is kept
    train,    // for one backward pass
  };
  explicit Tape(Mode mode = Mode::train, Context context = {});
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  bool records() const { return mode_ == Mode::train; }
  const Context& context() const { return context_; }

  /// Numbers from outside.
  Variable input(Tensor value, bool tracked = false) const;
  /// The same elements with a separate gradient: the input of a part of a network that runs on its
  /// own tape.
  Variable detach(const Variable& x) const;
  /// The elements of a variable that is no longer used: moved if nothing else holds them, copied
  /// otherwise.
  static Tensor release(Variable x);
  /// The result of an operation. `backward` gets its gradient and adds to the gradients of what the
  /// operation read. It is called at most once, and not at all if nothing depends on the result.
  Variable record(Tensor value, std::function<void(Tensor gradient)> backward);
  /// From the last operation to the first, with gradient 1 at `result`, which is one number. The
  /// tape is empty afterwards. Throws std::invalid_argument if the tape does not record.
  void backward(const Variable& result);
  /// The same with a gradient given for every number of the result.
  void backward(const Variable& result, Tensor gradient);

 private:
  struct Step {
    GradientSlot slot;
    std::function<void(Tensor gradient)> backward;
  };
  Mode mode_;
  Context context_;
  std::vector<Step> steps_;
};
template <>
inline constexpr EnumNames enum_names<Tape::Mode>{"mode of a tape", "forward, train"};

}  // namespace rapt
