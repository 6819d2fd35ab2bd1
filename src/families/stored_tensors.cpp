#include "families/stored_tensors.h"

#include <algorithm>

#include "base/io/check_input.h"
#include "formats/tensors/safetensors_file.h"

namespace rapt::detail {
namespace {

/// The row of a stored tensor that is row r of our parameter.
Index stored_row(Index r, TensorLayout layout, const ModelConfig& config) {
  const Index dim = config.dim(), heads = config.heads;
  if (layout == TensorLayout::by_head) {  // [3, heads, dim] here is [heads, 3, dim] in the file
    const Index part = r / (heads * dim), head = r / dim % heads;
    return (head * 3 + part) * dim + r % dim;
  }
  if (layout ==
      TensorLayout::half_split_rope) {  // [dim / 2, 2] of a head here is [2, dim / 2] in the file
    const Index head = r / dim, channel = r % dim;
    return head * dim + channel % 2 * (dim / 2) + channel / 2;
  }
  return r;
}

std::vector<Index> stored_shape(const StoredPart& part, const Shape& ours) {
  if (ours.rank() == 1) return {part.rows};
  if (part.layout == TensorLayout::transposed) return {ours[1], part.rows};
  if (part.layout == TensorLayout::grid_rows) return {part.rows, 1, ours[1]};
  if (part.layout == TensorLayout::grid_columns) return {1, part.rows, ours[1]};
  return {part.rows, ours[1]};
}

Shape shape_of(const std::vector<Index>& sizes) {
  if (sizes.size() == 1) return {sizes[0]};
  if (sizes.size() == 2) return {sizes[0], sizes[1]};
  return {sizes[0], sizes[1], sizes[2]};
}

std::string text_of(const std::vector<Index>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

template <class T>
void transpose(const T* from, Index rows, Index columns, T* to) {
  constexpr Index block = 32;
  for (Index r0 = 0; r0 < rows; r0 += block)
    for (Index c0 = 0; c0 < columns; c0 += block)
      for (Index r = r0; r < std::min(rows, r0 + block); ++r)
        for (Index c = c0; c < std::min(columns, c0 + block); ++c)
          to[c * rows + r] = from[r * columns + c];
}

/// Copies the numbers of a part to their rows of a parameter.
template <class T>
void place_part(const Tensor& numbers, const StoredPart& part, const ModelConfig& config,
                Tensor& whole) {
  const Index columns = whole.shape().rank() == 2 ? whole.shape()[1] : 1;
  const T* from = numbers.numbers<T>().data();
  T* to = whole.numbers<T>().data() + part.first * columns;
  if (part.layout == TensorLayout::transposed) return transpose(from, columns, part.rows, to);
  for (Index r = 0; r < part.rows; ++r)
    std::copy_n(from + stored_row(r, part.layout, config) * columns, columns, to + r * columns);
}

/// Converts to a type and refuses finite numbers that become infinite: f16 ends at 65504.
Tensor rounded(Tensor read, const std::string& name, const std::string& source, Type type) {
  if (read.type() == type) return read;
  Tensor made = read.converted(type);
  if (type == Type::f32) return made;
  if (const Index lost = count_non_finite(made) - count_non_finite(read); lost > 0)
    fail_input(source, ": ", name, " has ", lost, " of ", read.elements(),
               " numbers that are too large for ", to_string(type),
               "; expected weight_type = ", type == Type::f16 ? "bf16 or f32" : "f32");
  return made;
}

}  // namespace

void check_part(const StoredTensors& from, const StoredPart& part, const Shape& shape) {
  if (!from.has(part.name)) fail_input(from.source, ": there is no ", part.name);
  const std::vector<Index> given = from.shape(part.name), wanted = stored_shape(part, shape);
  if (given != wanted)
    fail_input(from.source, ": ", part.name, " has shape ", text_of(given), ", expected ",
               text_of(wanted));
}

bool StoredTensors::has(const std::string& name) const {
  return std::binary_search(names.begin(), names.end(), name);
}

Tensor gather(const StoredTensors& from, const std::vector<StoredPart>& parts, const Shape& shape,
              const ModelConfig& config, Type type) {
  // Before memory is allocated: a config may claim any size.
  for (const StoredPart& part : parts) check_part(from, part, shape);
  Tensor whole = Tensor::uninitialized(shape, type);
  for (const StoredPart& part : parts) {
    Tensor read = from.read(part.name);
    if (const Index bad = from.finite ? count_non_finite(read) : 0; bad > 0)
      fail_input(from.source, ": ", part.name, " has ", bad, " of ", read.elements(),
                 " numbers that are infinite or NaN, so the model would compute nothing else; to "
                 "load it anyway, set allow_non_finite");
    const Tensor numbers = rounded(std::move(read), part.name, from.source, type);
    if (type == Type::bf16) {
      place_part<Bf16>(numbers, part, config, whole);
    } else if (type == Type::f16) {
      place_part<F16>(numbers, part, config, whole);
    } else {
      place_part<float>(numbers, part, config, whole);
    }
  }
  return whole;
}

Tensor scatter(const Tensor& parameter, const StoredPart& part, const ModelConfig& config) {
  if (parameter.type() != Type::f32) return scatter(parameter.converted(Type::f32), part, config);
  const Shape& shape = parameter.shape();
  const Index columns = shape.rank() == 2 ? shape[1] : 1;
  const std::vector<Index> stored = stored_shape(part, shape);
  Tensor out = Tensor::uninitialized(shape_of(stored));
  const float* from = parameter.data() + part.first * columns;
  if (part.layout == TensorLayout::transposed) {
    transpose(from, part.rows, columns, out.data());
    return out;
  }
  for (Index r = 0; r < part.rows; ++r)
    std::copy_n(from + r * columns, columns,
                out.data() + stored_row(r, part.layout, config) * columns);
  return out;
}

}  // namespace rapt::detail
