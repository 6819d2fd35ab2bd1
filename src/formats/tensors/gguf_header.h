#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tensors/ggml_format.h"
#include "rapt/tensor.h"

namespace rapt::detail {

/// What a value of the metadata is; the values are those of the files.
enum class GgufType : std::uint8_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  text,
  list,
  u64,
  i64,
  f64
};

/// Metadata of a file: keys with typed values. The bytes of the header are kept as they are, and
/// values are decoded from them on request. Asking for a key that is not there, or for a
/// value as what it is not, is std::runtime_error with the path.
class GgufMetadata {
 public:
  /// A list of lists is refused, so a list is the type of its items and how many there are.
  struct Entry {
    Index key;    // place of the key in the header
    Index value;  // place of the value, or of the first item
    Index count;  // items of a list, bytes of a text, 1 otherwise
    std::uint16_t key_bytes;
    GgufType type, item;  // the same unless it is a list
  };

  GgufMetadata() = default;
  /// Entries are sorted by key here. Throws std::runtime_error if a key comes twice.
  GgufMetadata(std::string source, std::string bytes, std::vector<Entry> entries);

  Index size() const { return static_cast<Index>(entries_.size()); }
  /// In ascending order.
  std::vector<std::string_view> keys() const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  /// Null if there is none.
  const Entry* find(std::string_view key) const;

  /// Any whole number that fits an Index.
  Index integer(std::string_view key) const;
  /// Any number.
  double number(std::string_view key) const;
  bool boolean(std::string_view key) const;
  std::string_view text(std::string_view key) const;
  std::vector<Index> integers(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;
  std::vector<std::string_view> texts(std::string_view key) const;

 private:
  const Entry& wanted(std::string_view key) const;
  std::string_view key_of(const Entry& entry) const;
  template <class T, class Fits, class Read>
  std::vector<T> list(std::string_view key, const char* what, const Fits& fits,
                      const Read& read) const;
  Index integer_at(const Entry& entry, Index i) const;
  double number_at(const Entry& entry, Index i) const;

  std::string source_, bytes_;
  std::vector<Entry> entries_;
};

/// A tensor as a file describes it; checked, so that its bytes are there and are as many as its
/// shape needs.
struct GgufTensor {
  std::string name;
  const GgmlFormat* format;
  Shape shape;       // row-major: the last axis is contiguous
  Index offset = 0;  // of the first byte, from the beginning of the file
  Index bytes = 0;
};

struct GgufHeader {
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  // in ascending order of names
};

/// Where the bytes of a header come from.
struct GgufSource {
  std::string name;  // what messages call it
  Index bytes;       // of all of the file
  std::function<void(Index offset, std::span<std::byte> to)> read;
};

/// Reads and checks everything before the numbers: versions 2 and 3, little-endian; header of at
/// most 256 MiB; one to four axes, none of them empty; tensors without overlaps and without bytes
/// that belong to no tensor. Takes memory of at most four times the bytes it has read. Throws
/// std::runtime_error with the byte at which the file is wrong.
GgufHeader read_gguf_header(const GgufSource& source);

}  // namespace rapt::detail
