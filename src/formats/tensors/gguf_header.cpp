#include "formats/tensors/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "base/io/check_input.h"
#include "base/sizes.h"
#include "formats/config/json.h"

namespace rapt::detail {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are little-endian");

constexpr Index max_header_bytes = Index{256} << 20;
constexpr Index header_chunk_bytes = Index{1} << 20;
constexpr Index max_key_bytes = 65535, max_name_bytes = 1024;
/// The shortest entry: a key of one letter, its type, a value of one byte; and the shortest
/// description of a tensor: a name of one letter, one axis.
constexpr Index least_entry_bytes = 8 + 1 + 4 + 1, least_tensor_bytes = 8 + 1 + 4 + 8 + 4 + 8;
constexpr Index max_axes = 4, default_alignment = 32, max_alignment = 65536;

/// Bytes of a value; none of texts and lists.
Index size_of_value(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean:
      return 1;
    case GgufType::u16:
    case GgufType::i16:
      return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32:
      return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64:
      return 8;
    case GgufType::text:
    case GgufType::list:
      return 0;
  }
  return 0;
}

/// Walks over the header, and has read little more of it than it has passed.
class HeaderCursor {
 public:
  explicit HeaderCursor(const GgufSource& source) : source_(source) {}

  Index position() const { return position_; }
  Index remaining() const { return source_.bytes - position_; }
  const char* at(Index place) const { return bytes_.data() + place; }
  std::string take_bytes() { return std::move(bytes_); }

  template <class... Parts>
  void check(bool ok, Index place, const Parts&... parts) const {
    check_input(ok, source_.name, ": byte ", place, ": ", parts...);
  }

  /// Passes `bytes` bytes and gives the place of the first.
  Index skip(Index bytes, const char* what) {
    check(bytes <= remaining(), position_, what, " needs ", bytes, " bytes, but the file has only ",
          remaining(), " left");
    const Index begin = position_, end = begin + bytes;
    check(end <= max_header_bytes, begin, "the header is longer than ", max_header_bytes,
          " bytes, the limit");
    const Index have = static_cast<Index>(bytes_.size());
    if (end > have) {
      const Index size = std::min(source_.bytes, end + std::min(end, header_chunk_bytes));
      bytes_.reserve(to_size(std::min(source_.bytes, std::max(size, 2 * have))));
      bytes_.resize(to_size(size));
      source_.read(have, std::as_writable_bytes(std::span(bytes_)).subspan(to_size(have)));
    }
    position_ = end;
    return begin;
  }

  template <class T>
  T number(const char* what) {
    T x;
    std::memcpy(&x, at(skip(sizeof(T), what)), sizeof(T));
    return x;
  }

  /// A count of things that take `least` bytes each, and so a count that the file can hold.
  Index count(Index least, const char* what) {
    const Index place = position_;
    const auto n = number<std::uint64_t>(what);
    check(n <= static_cast<std::uint64_t>(remaining() / least), place, what, " is ", n,
          ", but the file has only ", remaining(), " bytes left");
    return static_cast<Index>(n);
  }

  /// A text: the place of its first byte and its length.
  std::pair<Index, Index> text(const char* what, Index limit) {
    const Index place = position_;
    const Index length = count(1, what);
    check(length <= limit, place, what, " is ", length, ", the limit is ", limit);
    const Index begin = skip(length, what);
    return {begin, length};
  }
  std::string_view view(std::pair<Index, Index> text) const {
    return {at(text.first), to_size(text.second)};
  }

 private:
  const GgufSource& source_;
  std::string bytes_;
  Index position_ = 0;
};

void check_beginning(HeaderCursor& in) {
  const Index magic = in.skip(4, "the magic word");
  in.check(std::string_view(in.at(magic), 4) == "GGUF", 0, "is no GGUF file, begins with ",
           printable({in.at(magic), 4}), ", expected \"GGUF\"");
  const auto version = in.number<std::uint32_t>("the version");
  in.check(version != 0x03000000 && version != 0x02000000, 4,
           "is a big-endian GGUF file, which is not supported");
  in.check(version == 2 || version == 3, 4, "is GGUF of version ", version, ", expected 2 or 3");
}

GgufType value_type(HeaderCursor& in, std::string_view key) {
  const Index place = in.position();
  const auto type = in.number<std::uint32_t>("the type of a value");
  in.check(type <= static_cast<std::uint32_t>(GgufType::f64), place, "key ", printable(key),
           " has a value of the unknown type ", type);
  return static_cast<GgufType>(type);
}

void check_booleans(const HeaderCursor& in, Index place, Index count) {
  for (Index i = 0; i < count; ++i)
    in.check(static_cast<unsigned char>(*in.at(place + i)) <= 1, place + i,
             "a value that is true or false is neither 0 nor 1");
}

/// A value of any type but a list.
void pass_value(HeaderCursor& in, GgufMetadata::Entry& entry) {
  if (entry.type == GgufType::text) {
    std::tie(entry.value, entry.count) = in.text("the length of a text", max_header_bytes);
    return;
  }
  entry.value = in.skip(size_of_value(entry.type), "a value");
  if (entry.type == GgufType::boolean) check_booleans(in, entry.value, 1);
}

void pass_list(HeaderCursor& in, GgufMetadata::Entry& entry, std::string_view key) {
  const Index place = in.position();
  entry.item = value_type(in, key);
  in.check(entry.item != GgufType::list, place, "key ", printable(key),
           " is a list of lists, which is not supported");
  if (entry.item == GgufType::text) {
    entry.count = in.count(8, "the length of a list");
    entry.value = in.position();
    for (Index i = 0; i < entry.count; ++i) in.text("the length of a text", max_header_bytes);
    return;
  }
  const Index size = size_of_value(entry.item);
  entry.count = in.count(size, "the length of a list");
  entry.value = in.skip(entry.count * size, "a list");
  if (entry.item == GgufType::boolean) check_booleans(in, entry.value, entry.count);
}

GgufMetadata::Entry pass_entry(HeaderCursor& in) {
  const Index place = in.position();
  const auto key = in.text("the length of a key", max_key_bytes);
  in.check(key.second > 0, place, "a key is empty");
  const std::string name(in.view(key));  // reading on may move the bytes
  GgufMetadata::Entry entry{.key = key.first,
                            .value = 0,
                            .count = 1,
                            .key_bytes = static_cast<std::uint16_t>(key.second),
                            .type = value_type(in, name),
                            .item = {}};
  entry.item = entry.type;
  if (entry.type == GgufType::list)
    pass_list(in, entry, name);
  else
    pass_value(in, entry);
  return entry;
}

Shape read_shape(HeaderCursor& in, const std::string& name) {
  const Index place = in.position();
  const auto axes = in.number<std::uint32_t>("the number of axes");
  in.check(axes >= 1 && axes <= max_axes, place, "tensor ", printable(name), " has ", axes,
           " axes, expected 1 to ", max_axes);
  Index sizes[max_axes];
  for (Index axis = 0; axis < axes; ++axis) {
    const Index at = in.position();
    const auto size = in.number<std::uint64_t>("a size");
    in.check(size > 0 && std::in_range<Index>(size), at, "tensor ", printable(name), " has size ",
             size, " on an axis, expected 1 to 2^63 - 1");
    sizes[static_cast<Index>(axes) - 1 - axis] = static_cast<Index>(size);
  }
  if (axes == 1) return {sizes[0]};
  if (axes == 2) return {sizes[0], sizes[1]};
  if (axes == 3) return {sizes[0], sizes[1], sizes[2]};
  return {sizes[0], sizes[1], sizes[2], sizes[3]};
}

/// Bytes of a tensor by its shape and format.
Index needed_bytes(const HeaderCursor& in, const GgufTensor& tensor, Index place) {
  const GgmlFormat& format = *tensor.format;
  const Index width = tensor.shape[tensor.shape.rank() - 1];
  in.check(width % format.numbers == 0, place, "tensor ", printable(tensor.name), " has rows of ",
           width, " numbers, ", format.name, " needs a multiple of ", format.numbers);
  Index bytes = format.bytes;
  bool fits = !__builtin_mul_overflow(bytes, width / format.numbers, &bytes);
  Index elements = width;  // may overflow where the bytes do not
  for (Index axis = 0; axis + 1 < tensor.shape.rank(); ++axis) {
    fits = fits && !__builtin_mul_overflow(bytes, tensor.shape[axis], &bytes) &&
           !__builtin_mul_overflow(elements, tensor.shape[axis], &elements);
  }
  in.check(fits, place, "tensor ", printable(tensor.name),
           " is so large that its size overflows 64 bits");
  return bytes;
}

/// `offset` is still relative to the beginning of the numbers.
GgufTensor read_tensor(HeaderCursor& in) {
  const Index place = in.position();
  const auto name = in.text("the length of a name", max_name_bytes);
  in.check(name.second > 0, place, "the name of a tensor is empty");
  GgufTensor tensor{.name = std::string(in.view(name)), .format = nullptr, .shape = {}};
  tensor.shape = read_shape(in, tensor.name);
  const Index type_place = in.position();
  const auto type = in.number<std::uint32_t>("the type of a tensor");
  tensor.format = find_ggml_format(type);
  in.check(tensor.format != nullptr, type_place, "tensor ", printable(tensor.name),
           " has the unknown type ", type);
  const Index offset_place = in.position();
  const auto offset = in.number<std::uint64_t>("the offset of a tensor");
  tensor.bytes = needed_bytes(in, tensor, place);
  in.check(offset <= static_cast<std::uint64_t>(in.remaining()), offset_place, "tensor ",
           printable(tensor.name), " begins ", offset, " bytes after the header, beyond the file");
  tensor.offset = static_cast<Index>(offset);
  return tensor;
}

Index alignment_of(const GgufMetadata& metadata, const std::string& source) {
  constexpr std::string_view key = "general.alignment";
  if (!metadata.has(key)) return default_alignment;
  const Index alignment = metadata.integer(key);
  check_input(alignment >= 8 && alignment <= max_alignment &&
                  std::has_single_bit(static_cast<std::uint64_t>(alignment)),
              source, ": byte ", metadata.find(key)->value, ": general.alignment is ", alignment,
              ", expected a power of two from 8 to ", max_alignment);
  return alignment;
}

/// Every byte after the header belongs to one tensor, or fills up the last unit of alignment.
void check_coverage(std::vector<GgufTensor>& tensors, Index begin, Index alignment,
                    const GgufSource& source) {
  std::sort(tensors.begin(), tensors.end(),
            [](const GgufTensor& a, const GgufTensor& b) { return a.offset < b.offset; });
  Index covered = begin;
  for (const GgufTensor& tensor : tensors) {
    check_input(tensor.offset >= covered, source.name, ": byte ", tensor.offset, ": tensor ",
                printable(tensor.name), " overlaps what is before it");
    const Index expected = round_up(covered, alignment);
    check_input(tensor.offset == expected, source.name, ": byte ", tensor.offset, ": tensor ",
                printable(tensor.name), " begins here, expected byte ", expected,
                " (the end of the one before, aligned to ", alignment, ")");
    check_input(tensor.bytes <= source.bytes - tensor.offset, source.name, ": byte ", tensor.offset,
                ": tensor ", printable(tensor.name), " needs ", tensor.bytes,
                " bytes, but the file has only ", source.bytes - tensor.offset, " left");
    covered = tensor.offset + tensor.bytes;
  }
  check_input(source.bytes - covered < alignment, source.name, ": byte ", covered,
              ": the bytes from here on belong to no tensor");
}

void sort_by_name(std::vector<GgufTensor>& tensors, const std::string& source) {
  std::sort(tensors.begin(), tensors.end(),
            [](const GgufTensor& a, const GgufTensor& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(tensors.begin(), tensors.end(),
                         [](const GgufTensor& a, const GgufTensor& b) { return a.name == b.name; });
  if (twice != tensors.end())
    fail_input(source, ": byte ", twice->offset, ": tensor ", printable(twice->name),
               " occurs twice");
}

}  // namespace

GgufHeader read_gguf_header(const GgufSource& source) {
  HeaderCursor in(source);
  check_beginning(in);
  const Index tensors = in.count(least_tensor_bytes, "the number of tensors");
  const Index entries = in.count(least_entry_bytes, "the number of keys");
  std::vector<GgufMetadata::Entry> list;
  list.reserve(to_size(entries));
  for (Index i = 0; i < entries; ++i) list.push_back(pass_entry(in));
  GgufHeader header;
  header.tensors.reserve(to_size(std::min(tensors, in.remaining() / least_tensor_bytes)));
  for (Index i = 0; i < tensors; ++i) header.tensors.push_back(read_tensor(in));
  const Index end = in.position();
  header.metadata = GgufMetadata(source.name, in.take_bytes(), std::move(list));
  const Index alignment = alignment_of(header.metadata, source.name);
  // A file of metadata only may end where its header does.
  const Index begin = std::min(round_up(end, alignment), source.bytes);
  for (GgufTensor& tensor : header.tensors)
    check_input(!__builtin_add_overflow(tensor.offset, begin, &tensor.offset), source.name,
                ": tensor ", printable(tensor.name), " begins beyond the file");
  check_coverage(header.tensors, begin, alignment, source);
  sort_by_name(header.tensors, source.name);
  return header;
}

}  // namespace rapt::detail
