#include "formats/toml.h"

#include "base/files.h"
#include "base/input.h"

namespace rapt {

/// What toml++ takes for granted of a text is not so.
struct NotToml {};
[[noreturn]] static void refuse_toml() { throw NotToml(); }

}  // namespace rapt

// toml++ 3.3 asserts what a text may well get wrong ("[`a]"), and where assertions are off takes it
// for granted, which is undefined. Here it is refused, in every build.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(expected) ((expected) ? static_cast<void>(0) : rapt::refuse_toml())
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include <toml++/toml.h>
#pragma GCC diagnostic pop
#pragma pop_macro("NDEBUG")

namespace rapt {
namespace {

Json value_of(const toml::node& node, const std::string& source);

Json table_of(const toml::table& table, const std::string& source) {
  Json object = Json::object();
  for (const auto& [key, node] : table)
    object.emplace(std::string(key.str()), value_of(node, source));
  return object;
}

Json array_of(const toml::array& array, const std::string& source) {
  Json values = Json::array();
  for (const toml::node& node : array) values.push_back(value_of(node, source));
  return values;
}

/// Recursion ends with toml++'s own limit of 256 levels.
Json value_of(const toml::node& node, const std::string& source) {
  if (const auto* table = node.as_table()) return table_of(*table, source);
  if (const auto* array = node.as_array()) return array_of(*array, source);
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* whole = node.as_integer()) return whole->get();
  if (const auto* real = node.as_floating_point()) return real->get();
  if (const auto* boolean = node.as_boolean()) return boolean->get();
  fail_input(source, ":", node.source().begin.line, ": dates and times are not understood here");
}

}  // namespace

Json parse_toml(std::string_view text, const std::string& source) {
  try {
    return table_of(toml::parse(text), source);
  } catch (const toml::parse_error& error) {
    const toml::source_position place = error.source().begin;
    fail_input(source, ":", place.line, ":", place.column, ": ", error.description());
  } catch (const NotToml&) {
    fail_input(source, ": is no TOML: a letter stands where the name of a table or key should");
  }
}

Json read_toml(const std::string& path) {
  return parse_toml(read_file(path, Index{1} << 20), path);
}

}  // namespace rapt
