#pragma once

#include <type_traits>

#include "formats/config/fields.h"

namespace rapt {

// Visitors of a list of fields, visit("name", member): one list serves reading and writing.

/// Fills members from the keys of an object; what is not there stays as it is. The words of an
/// enum are Words<Enum>::list.
template <template <class> class Words>
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
  /// A single text is a list of one.
  void operator()(const char* name, std::vector<std::string>& member) {
    if (fields_.value(name).is_string()) {
      member = {fields_.text(name)};
    } else {
      member = fields_.texts(name, member);
    }
  }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void operator()(const char* name, Enum& member) {
    const std::vector<std::string> words(std::begin(Words<Enum>::list),
                                         std::end(Words<Enum>::list));
    const std::string word = fields_.choice(name, words, words[static_cast<std::size_t>(member)]);
    const auto found = std::find(words.begin(), words.end(), word);
    member = static_cast<Enum>(found - words.begin());
  }

 private:
  Fields& fields_;
};

/// Puts members into an object.
template <template <class> class Words>
class FieldWriter {
 public:
  template <class T>
  void operator()(const char* name, const T& member) {
    if constexpr (std::is_enum_v<T>) {
      object[name] = Words<T>::list[static_cast<std::size_t>(member)];
    } else {
      object[name] = member;
    }
  }
  Json object = Json::object();
};

}  // namespace rapt
