#include "base/enum_names.h"

#include <algorithm>

#include "base/check.h"

namespace rapt::detail {
namespace {

constexpr std::string_view separator = ", ";

/// Names are C++ identifiers; on a command line a hyphen is as good as an underscore.
bool same_name(std::string_view a, std::string_view b) {
  const auto letter = [](char c) { return c == '-' ? '_' : c; };
  return std::ranges::equal(a, b, {}, letter, letter);
}

}  // namespace

std::vector<std::string_view> split_names(const EnumNames& names) {
  std::vector<std::string_view> out;
  std::string_view rest = names.values;
  while (true) {
    const std::size_t end = rest.find(separator);
    out.push_back(rest.substr(0, end));
    if (end == std::string_view::npos) return out;
    rest.remove_prefix(end + separator.size());
  }
}

std::optional<int> find_enum_value(const EnumNames& names, std::string_view name) {
  int value = 0;
  for (const std::string_view each : split_names(names)) {
    if (same_name(each, name)) return value;
    ++value;
  }
  return std::nullopt;
}

std::string enum_choices(const EnumNames& names) {
  std::string text(names.values);
  const std::size_t last = text.rfind(separator);
  if (last != std::string::npos) text.replace(last, separator.size(), " or ");
  return text;
}

std::string enum_name(const EnumNames& names, int value) {
  const std::vector<std::string_view> all = split_names(names);
  check(0 <= value && value < std::ssize(all), names.what, ": number ", value,
        " given, expected 0 to ", std::ssize(all) - 1);
  return std::string(all[static_cast<std::size_t>(value)]);
}

int enum_value(const EnumNames& names, std::string_view name) {
  const std::optional<int> value = find_enum_value(names, name);
  check(value.has_value(), names.what, ": \"", name, "\" given, expected ", enum_choices(names));
  return *value;
}

}  // namespace rapt::detail
