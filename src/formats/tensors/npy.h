#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/files.h"
#include "rapt/tensor.h"

namespace rapt {

enum class NpyType { f16, f32, f64, i32, i64 };

/// What a .npy file says of its array; checked against the bytes it has.
struct NpyHeader {
  NpyType type;
  std::vector<Index> shape;    // up to four axes; a scalar has none
  bool columns_first = false;  // the first axis is the one whose numbers lie side by side
  Index data = 0;              // where the numbers begin
  Index elements = 0;
};

/// Reads the header of an array that has `bytes` bytes, of which `begin` are the first: all of
/// them, or at least npy_header_limit. Versions 1 to 3, little-endian. Throws std::runtime_error.
NpyHeader parse_npy_header(std::string_view begin, const std::string& source, Index bytes);
inline constexpr Index npy_header_limit = 65536;

/// One array as it was saved by numpy.save, or under a name by numpy.savez. Opening reads headers
/// only. Nothing in a file is trusted, objects are never loaded. Throws std::runtime_error.
class NpyFile {
 public:
  explicit NpyFile(const std::string& path);

  const NpyHeader& header() const { return header_; }
  const std::string& name() const { return name_; }

  /// Row-major, as f32; f64 is rounded. Whole numbers are refused.
  Tensor read() const;
  /// Whole numbers in row-major order. Numbers that are not whole by type are refused.
  std::vector<Index> read_integers() const;

 private:
  friend std::vector<NpyFile> open_npz(const std::string& path);
  NpyFile(std::shared_ptr<const InputFile> file, std::string name, Index offset, Index bytes);
  template <class From, class To>
  void read_as(To* out) const;

  std::shared_ptr<const InputFile> file_;  // arrays of an archive have one
  std::string name_;                       // in an archive, without ".npy"
  Index offset_ = 0;                       // of the array in the file
  NpyHeader header_;
};

/// The arrays of a .npz archive, in its order. Compressed ones are refused: numpy.savez does not
/// compress.
std::vector<NpyFile> open_npz(const std::string& path);

}  // namespace rapt
