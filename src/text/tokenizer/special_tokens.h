#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "formats/config/json.h"
#include "rapt/tokenizer.h"

namespace rapt {

/// What is put around and between texts: [CLS] first [SEP] second [SEP]. Every part has a type.
class EncodingFrame {
 public:
  using Ids = std::vector<std::int32_t>;

  /// Nothing around texts; the second of a pair has type 1.
  EncodingFrame();
  /// The "post_processor" of a tokenizer.json, which may be null. Ids lie below `entries`. Throws
  /// std::runtime_error, beginning with `source`, for what is not understood.
  EncodingFrame(const Json& part, const std::string& source, Index entries);

  /// Without `special` only the texts, but with their types.
  Encoding of(Ids text, bool special) const;
  Encoding of(Ids first, Ids second, bool special) const;

 private:
  enum class Content { special, first, second };
  struct Part {
    Content content;
    Ids ids;  // of special ones
    std::int32_t type;
  };
  using Parts = std::vector<Part>;

  void read(const Json& part, const std::string& source, Index entries);
  void read_template(const Json& part, const std::string& source, Index entries);
  void read_classic(const Json& part, const std::string& source, Index entries);
  static Encoding put_together(const Parts& parts, const Ids& first, const Ids& second,
                               bool special);

  Parts single_, pair_;
  bool read_ = false;  // one that puts something in has been read
};

}  // namespace rapt
