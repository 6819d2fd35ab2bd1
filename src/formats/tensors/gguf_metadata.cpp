#include <algorithm>
#include <cstring>
#include <utility>

#include "base/indexed_vector.h"
#include "base/io/check_input.h"
#include "formats/config/json.h"
#include "formats/tensors/gguf_header.h"

namespace rapt::detail {
namespace {

template <class T>
T load(const char* at) {
  T x;
  std::memcpy(&x, at, sizeof(T));
  return x;
}

bool is_any_number(GgufType type) {
  return type != GgufType::boolean && type != GgufType::text && type != GgufType::list;
}
bool is_integer(GgufType type) {
  return is_any_number(type) && type != GgufType::f32 && type != GgufType::f64;
}

/// Calls `use` with item i as the number it is.
template <class Use>
auto with_number(GgufType type, const char* at, Index i, const Use& use) {
  switch (type) {
    case GgufType::u8:
      return use(load<std::uint8_t>(at + i));
    case GgufType::i8:
      return use(load<std::int8_t>(at + i));
    case GgufType::u16:
      return use(load<std::uint16_t>(at + 2 * i));
    case GgufType::i16:
      return use(load<std::int16_t>(at + 2 * i));
    case GgufType::u32:
      return use(load<std::uint32_t>(at + 4 * i));
    case GgufType::i32:
      return use(load<std::int32_t>(at + 4 * i));
    case GgufType::f32:
      return use(load<float>(at + 4 * i));
    case GgufType::u64:
      return use(load<std::uint64_t>(at + 8 * i));
    case GgufType::i64:
      return use(load<std::int64_t>(at + 8 * i));
    default:
      return use(load<double>(at + 8 * i));
  }
}

}  // namespace

GgufMetadata::GgufMetadata(std::string source, std::string bytes, std::vector<Entry> entries)
    : source_(std::move(source)), bytes_(std::move(bytes)), entries_(std::move(entries)) {
  std::sort(entries_.begin(), entries_.end(),
            [&](const Entry& a, const Entry& b) { return key_of(a) < key_of(b); });
  const auto twice =
      std::adjacent_find(entries_.begin(), entries_.end(),
                         [&](const Entry& a, const Entry& b) { return key_of(a) == key_of(b); });
  if (twice != entries_.end())
    fail_input(source_, ": key ", printable(key_of(*twice)), " occurs twice, at bytes ",
               std::min(twice->key, twice[1].key), " and ", std::max(twice->key, twice[1].key));
}

std::string_view GgufMetadata::key_of(const Entry& entry) const {
  return std::string_view(bytes_).substr(to_size(entry.key), to_size(entry.key_bytes));
}

std::vector<std::string_view> GgufMetadata::keys() const {
  std::vector<std::string_view> keys;
  for (const Entry& entry : entries_) keys.push_back(key_of(entry));
  return keys;
}

const GgufMetadata::Entry* GgufMetadata::find(std::string_view key) const {
  const auto at =
      std::lower_bound(entries_.begin(), entries_.end(), key,
                       [&](const Entry& entry, std::string_view k) { return key_of(entry) < k; });
  return at != entries_.end() && key_of(*at) == key ? &*at : nullptr;
}

const GgufMetadata::Entry& GgufMetadata::wanted(std::string_view key) const {
  const Entry* entry = find(key);
  check_input(entry != nullptr, source_, ": has no key ", printable(key));
  return *entry;
}

Index GgufMetadata::integer_at(const Entry& entry, Index i) const {
  return with_number(entry.item, bytes_.data() + entry.value, i, [&](auto x) -> Index {
    if constexpr (std::is_integral_v<decltype(x)>) {
      check_input(std::in_range<Index>(x), source_, ": key ", printable(key_of(entry)), " is ", x,
                  ", which does not fit 63 bits");
      return static_cast<Index>(x);
    } else {
      return 0;
    }
  });
}

double GgufMetadata::number_at(const Entry& entry, Index i) const {
  return with_number(entry.item, bytes_.data() + entry.value, i,
                     [](auto x) { return static_cast<double>(x); });
}

Index GgufMetadata::integer(std::string_view key) const {
  const Entry& entry = wanted(key);
  check_input(is_integer(entry.type), source_, ": key ", printable(key), " at byte ", entry.value,
              " is not a whole number");
  return integer_at(entry, 0);
}

double GgufMetadata::number(std::string_view key) const {
  const Entry& entry = wanted(key);
  check_input(is_any_number(entry.type), source_, ": key ", printable(key), " at byte ",
              entry.value, " is not a number");
  return number_at(entry, 0);
}

bool GgufMetadata::boolean(std::string_view key) const {
  const Entry& entry = wanted(key);
  check_input(entry.type == GgufType::boolean, source_, ": key ", printable(key), " at byte ",
              entry.value, " is not true or false");
  return element(bytes_, entry.value) != 0;
}

std::string_view GgufMetadata::text(std::string_view key) const {
  const Entry& entry = wanted(key);
  check_input(entry.type == GgufType::text, source_, ": key ", printable(key), " at byte ",
              entry.value, " is not text");
  return std::string_view(bytes_).substr(to_size(entry.value), to_size(entry.count));
}

template <class T, class Fits, class Read>
std::vector<T> GgufMetadata::list(std::string_view key, const char* what, const Fits& fits,
                                  const Read& read) const {
  const Entry& entry = wanted(key);
  check_input(entry.type == GgufType::list && fits(entry.item), source_, ": key ", printable(key),
              " at byte ", entry.value, " is not a list of ", what);
  std::vector<T> items;
  items.reserve(to_size(entry.count));
  for (Index i = 0; i < entry.count; ++i) items.push_back(read(entry, i));
  return items;
}

std::vector<Index> GgufMetadata::integers(std::string_view key) const {
  return list<Index>(key, "whole numbers", is_integer,
                     [&](const Entry& entry, Index i) { return integer_at(entry, i); });
}

std::vector<double> GgufMetadata::numbers(std::string_view key) const {
  return list<double>(key, "numbers", is_any_number,
                      [&](const Entry& entry, Index i) { return number_at(entry, i); });
}

std::vector<std::string_view> GgufMetadata::texts(std::string_view key) const {
  const Entry& entry = wanted(key);
  check_input(entry.type == GgufType::list && entry.item == GgufType::text, source_, ": key ",
              printable(key), " at byte ", entry.value, " is not a list of texts");
  std::vector<std::string_view> items;
  items.reserve(to_size(entry.count));
  const char* at = bytes_.data() + entry.value;  // the lengths were checked when the file was read
  for (Index i = 0; i < entry.count; ++i) {
    const auto length = load<std::uint64_t>(at);
    items.emplace_back(at + 8, length);
    at += 8 + length;
  }
  return items;
}

}  // namespace rapt::detail
