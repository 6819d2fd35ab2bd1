#pragma once

#include <type_traits>

#include "base/enum_names.h"
#include "formats/config/fields.h"
#include "rapt/pattern.h"

namespace rapt::detail {

// Visitors of a list of fields, visit("name", member): one list serves reading and writing.

/// How a file writes an optional number that it does not want to have.
inline constexpr const char* no_value = "none";

template <NamedEnum Enum>
Enum enum_field(Fields& fields, const std::string& key, Enum otherwise) {
  const std::optional<int> value =
      find_enum_value(enum_names<Enum>, fields.text(key, to_string(otherwise)));
  if (!value) fields.fail(key, "expected " + enum_choices(enum_names<Enum>));
  return static_cast<Enum>(*value);
}

/// Fills members from the keys of an object; what is not there stays as it is.
class FieldReader {
 public:
  explicit FieldReader(Fields& fields) : fields_(fields) {}

  void operator()(const char* name, Index& member) { member = fields_.integer(name, {}, member); }
  void operator()(const char* name, std::uint64_t& member) {
    constexpr Index highest = std::numeric_limits<Index>::max();
    member =
        static_cast<std::uint64_t>(fields_.integer(name, {0, highest}, static_cast<Index>(member)));
  }
  void operator()(const char* name, double& member) { member = fields_.real(name, {}, member); }
  void operator()(const char* name, bool& member) { member = fields_.boolean(name, member); }
  void operator()(const char* name, std::string& member) { member = fields_.text(name, member); }
  /// Null, and "none" for a number, is none; what is not there stays as it is.
  template <class T>
  void operator()(const char* name, std::optional<T>& member) {
    if (!fields_.contains(name)) return;
    const Json& given = fields_.value(name);
    if (given.is_null() || (!std::is_same_v<T, std::string> && given == no_value)) {
      member.reset();
    } else {
      T value{};
      (*this)(name, value);
      member = std::move(value);
    }
  }
  template <NamedEnum Enum>
  void operator()(const char* name, Enum& member) {
    member = enum_field(fields_, name, member);
  }
  /// Their text; a single one is a list of one. Throws std::invalid_argument as Pattern::parse
  /// does.
  void operator()(const char* name, std::vector<Pattern>& member) {
    if (!fields_.has(name)) return;
    const bool one = fields_.value(name).is_string();
    member.clear();
    for (const std::string& text : one ? std::vector{fields_.text(name)} : fields_.texts(name))
      member.push_back(Pattern::parse(text));
  }

 private:
  Fields& fields_;
};

/// Puts members into an object.
class FieldWriter {
 public:
  template <class T>
  void operator()(const char* name, const T& member) {
    if constexpr (std::is_enum_v<T>) {
      object[name] = to_string(member);
    } else {
      object[name] = member;
    }
  }
  template <class T>
  void operator()(const char* name, const std::optional<T>& member) {
    object[name] = member ? Json(*member) : Json();
  }
  void operator()(const char* name, const std::vector<Pattern>& member) {
    Json& texts = object[name] = Json::array();
    for (const Pattern& pattern : member) texts.push_back(to_string(pattern));
  }
  Json object = Json::object();
};

}  // namespace rapt::detail
