#include "formats/tensors/npy.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/buffer.h"
#include "base/io/input.h"
#include "base/sizes.h"
#include "formats/config/json.h"

namespace rapt {
namespace {

constexpr Index read_at_once = Index{1} << 16;  // numbers

/// The header of a file that has `bytes` bytes from `offset` on.
NpyHeader header_at(const InputFile& file, const std::string& source, Index offset, Index bytes) {
  std::string begin(static_cast<std::size_t>(std::min(bytes, npy_header_limit)), '\0');
  file.read(offset, std::as_writable_bytes(std::span(begin)));
  return parse_npy_header(begin, source, bytes);
}

Shape shape_of(const NpyHeader& header) {
  const std::vector<Index>& s = header.shape;
  if (s.empty()) return {1};
  if (s.size() == 1) return {s[0]};
  if (s.size() == 2) return {s[0], s[1]};
  if (s.size() == 3) return {s[0], s[1], s[2]};
  return {s[0], s[1], s[2], s[3]};
}

/// Where numbers go that come one after the other with the first axis running fastest.
class ColumnsFirst {
 public:
  explicit ColumnsFirst(const Shape& shape) : shape_(shape), strides_(shape.row_major()) {}
  Index next() {
    const Index place = place_;
    for (Index axis = 0; axis < shape_.rank(); ++axis) {
      place_ += strides_[axis];
      if (++at_[axis] < shape_[axis]) break;
      place_ -= at_[axis] * strides_[axis];
      at_[axis] = 0;
    }
    return place;
  }

 private:
  Shape shape_, strides_;
  Index at_[Shape::max_rank] = {};
  Index place_ = 0;
};

}  // namespace

NpyFile::NpyFile(const std::string& path)
    : file_(std::make_shared<InputFile>(path)),
      header_(header_at(*file_, path, 0, file_->size())) {}

NpyFile::NpyFile(std::shared_ptr<const InputFile> file, std::string name, Index offset, Index bytes)
    : file_(std::move(file)),
      name_(std::move(name)),
      offset_(offset),
      header_(
          header_at(*file_, file_->path() + ": array " + printable(name_).text(), offset, bytes)) {}

template <class From, class To>
void NpyFile::read_as(To* out) const {
  Buffer<From> numbers(std::min(read_at_once, header_.elements));
  ColumnsFirst places(shape_of(header_));
  for (Index first = 0; first < header_.elements; first += numbers.size()) {
    const Index count = std::min(numbers.size(), header_.elements - first);
    file_->read(offset_ + header_.data + first * static_cast<Index>(sizeof(From)),
                std::as_writable_bytes(std::span(numbers.data(), static_cast<std::size_t>(count))));
    for (Index i = 0; i < count; ++i)
      out[header_.columns_first ? places.next() : first + i] = static_cast<To>(numbers[i]);
  }
}

Tensor NpyFile::read() const {
  check_input(header_.type < NpyType::i32, file_->path(),
              ": holds whole numbers, expected f16, f32 or f64");
  Tensor out;
  try {
    out = Tensor::uninitialized(shape_of(header_));
  } catch (const std::bad_alloc&) {
    fail_input(file_->path(), ": an array of ", header_.elements,
               " numbers needs more memory than there is");
  }
  if (header_.type == NpyType::f16) read_as<F16>(out.data());
  if (header_.type == NpyType::f32) read_as<float>(out.data());
  if (header_.type == NpyType::f64) read_as<double>(out.data());
  return out;
}

std::vector<Index> NpyFile::read_integers() const {
  check_input(header_.type >= NpyType::i32, file_->path(),
              ": holds numbers that are not whole, expected i32 or i64");
  std::vector<Index> out(static_cast<std::size_t>(header_.elements));
  if (header_.type == NpyType::i32)
    read_as<std::int32_t>(out.data());
  else
    read_as<std::int64_t>(out.data());
  return out;
}

}  // namespace rapt
