#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <string_view>

#include "rapt/tensor.h"

namespace rapt::detail {

using Json = nlohmann::json;

/// A text beyond these limits is refused.
struct JsonLimits {
  Index bytes = 100'000'000;
  Index depth = 64;
  Index string_bytes = Index{1} << 20;
};

/// Gets the parts of a JSON text in order. What it throws is given the place in the text.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual void open_object() = 0;
  virtual void open_array() = 0;
  virtual void key(std::string name) = 0;
  /// Anything that is no object and no array. Whole numbers that fit 64 bits are exact.
  virtual void scalar(Json value) = 0;
  virtual void close() = 0;
};

/// Reads a text without ever holding more than one part of it. `source` is what messages call the
/// text. Throws std::runtime_error with the byte at which the text is wrong or exceeds a limit.
void visit_json(std::string_view text, const std::string& source, JsonEvents& events,
                const JsonLimits& limits = {});

/// The value of a text. Beyond the grammar: no key twice in an object, no value that needs more
/// memory than three times its text and 64 MiB.
Json parse_json(std::string_view text, const std::string& source, const JsonLimits& limits = {});
Json read_json(const std::string& path, const JsonLimits& limits = {});

/// A name from outside, safe to print: quotes, escapes, ASCII, and not endless. Made only if a
/// message is.
struct Printable {
  std::string_view name;
  std::string text() const;
  friend std::ostream& operator<<(std::ostream& out, const Printable& printable) {
    return out << printable.text();
  }
};
inline Printable printable(std::string_view name) { return {name}; }

}  // namespace rapt::detail
