#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/io/input.h"
#include "formats/config/json.h"
#include "formats/tensors/npy.h"

namespace rapt {
namespace {

constexpr struct {
  std::string_view name;
  NpyType type;
  Index bytes;
} types[] = {{"<f2", NpyType::f16, 2},
             {"<f4", NpyType::f32, 4},
             {"<f8", NpyType::f64, 8},
             {"<i4", NpyType::i32, 4},
             {"<i8", NpyType::i64, 8}};
constexpr std::size_t max_axes = 4;

/// The dictionary of a header: a small part of Python's literals, and all that numpy writes.
class Literal {
 public:
  Literal(std::string_view text, const std::string& source, Index offset)
      : text_(text), source_(source), offset_(offset) {}

  template <class... Parts>
  void check(bool ok, const Parts&... parts) const {
    check_input(ok, source_, ": byte ", offset_ + static_cast<Index>(at_), ": ", parts...);
  }

  bool take(char letter) {
    skip_spaces();
    if (at_ >= text_.size() || text_[at_] != letter) return false;
    ++at_;
    return true;
  }
  void need(char letter) {
    check(take(letter), "the header is not the dictionary it should be, expected ", letter);
  }
  void need_end() {
    skip_spaces();
    check(at_ == text_.size(), "something follows the dictionary of the header");
  }
  std::string_view text() {
    const char quote = take('"') ? '"' : '\'';
    if (quote == '\'') need('\'');
    const std::size_t end = text_.find(quote, at_);
    check(end != std::string_view::npos, "a text does not end");
    const std::string_view found = text_.substr(at_, end - at_);
    at_ = end + 1;
    return found;
  }
  bool truth() {
    skip_spaces();
    for (const std::string_view word : {"True", "False"})
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return word == "True";
      }
    check(false, "fortran_order is neither True nor False");
    return false;
  }
  std::vector<Index> sizes() {
    need('(');
    std::vector<Index> list;
    while (!take(')')) {
      check(list.size() < max_axes, "more than ", max_axes, " axes");
      list.push_back(number());
      if (!take(',')) {
        need(')');
        break;
      }
    }
    return list;
  }

 private:
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  Index number() {
    skip_spaces();
    Index value = -1;
    const char *begin = text_.data() + at_, *end = text_.data() + text_.size();
    const auto [stop, error] = std::from_chars(begin, end, value);
    check(error == std::errc() && value >= 0, "a size is not a whole number from 0 to 2^63 - 1");
    at_ += static_cast<std::size_t>(stop - begin);
    return value;
  }

  std::string_view text_;
  const std::string& source_;
  Index offset_;
  std::size_t at_ = 0;
};

NpyType type_named(const Literal& in, std::string_view name) {
  in.check(name.find('O') == std::string_view::npos,
           "the array holds Python objects: not supported by design, they can run code");
  const auto* found =
      std::find_if(std::begin(types), std::end(types), [&](auto& t) { return t.name == name; });
  in.check(found != std::end(types), "numbers of type ", printable(name),
           " are not supported, expected <f2, <f4, <f8, <i4 or <i8");
  return found->type;
}

/// The dictionary: each of three keys, once.
NpyHeader parse_dictionary(Literal& in) {
  std::optional<NpyType> type;
  std::optional<bool> order;
  std::optional<std::vector<Index>> shape;
  in.need('{');
  while (!in.take('}')) {
    const std::string_view key = in.text();
    in.need(':');
    const bool again =
        (key == "descr" && type) || (key == "fortran_order" && order) || (key == "shape" && shape);
    in.check(!again, printable(key), " occurs twice");
    if (key == "descr")
      type = type_named(in, in.text());
    else if (key == "fortran_order")
      order = in.truth();
    else if (key == "shape")
      shape = in.sizes();
    else
      in.check(false, "unknown key ", printable(key));
    if (!in.take(',')) {
      in.need('}');
      break;
    }
  }
  in.need_end();
  in.check(type && order && shape, "expected descr, fortran_order and shape");
  return {.type = *type, .shape = std::move(*shape), .columns_first = *order};
}

/// Length of the dictionary, and where it begins.
struct Dictionary {
  Index begin, bytes;
};
Dictionary find_dictionary(std::string_view begin, const std::string& source) {
  check_input(begin.size() >= 10 && begin.starts_with("\x93NUMPY"), source,
              ": byte 0: is no .npy file");
  const auto byte = [&](std::size_t i) {
    return static_cast<Index>(static_cast<unsigned char>(begin[i]));
  };
  const Index version = byte(6);
  check_input(version >= 1 && version <= 3 && byte(7) == 0, source, ": byte 6: is .npy of version ",
              version, ".", byte(7), ", expected 1.0, 2.0 or 3.0");
  if (version == 1) return {10, byte(8) | byte(9) << 8};
  check_input(begin.size() >= 12, source, ": byte 8: ends within its header");
  return {12, byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24};
}

}  // namespace

NpyHeader parse_npy_header(std::string_view begin, const std::string& source, Index bytes) {
  const Dictionary place = find_dictionary(begin, source);
  check_input(place.bytes <= npy_header_limit - place.begin, source, ": byte 8: the header has ",
              place.bytes, " bytes, the limit is ", npy_header_limit - place.begin);
  check_input(place.begin + place.bytes <= static_cast<Index>(begin.size()), source,
              ": byte 8: the header has ", place.bytes, " bytes, but the file ends before");
  Literal in(
      begin.substr(static_cast<std::size_t>(place.begin), static_cast<std::size_t>(place.bytes)),
      source, place.begin);
  NpyHeader header = parse_dictionary(in);
  header.data = place.begin + place.bytes;
  header.elements = 1;
  bool fits = true;
  for (const Index size : header.shape)
    fits = fits && !__builtin_mul_overflow(header.elements, size, &header.elements);
  Index needed = 0;
  for (const auto& entry : types)
    if (entry.type == header.type)
      fits = fits && !__builtin_mul_overflow(header.elements, entry.bytes, &needed);
  check_input(fits, source, ": byte ", place.begin,
              ": the array is so large that its size overflows 64 bits");
  check_input(bytes - header.data == needed, source, ": byte ", header.data, ": has ",
              bytes - header.data, " bytes of numbers, its type and shape need ", needed);
  return header;
}

}  // namespace rapt
