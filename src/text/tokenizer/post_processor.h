#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "formats/config/json.h"
#include "rapt/models/tokenizer.h"

namespace rapt::detail {

/// Adds special tokens around and between texts: [CLS] first [SEP] second [SEP].
class PostProcessor {
 public:
  using Ids = std::vector<std::int32_t>;

  /// Adds nothing; the second text of a pair has type id 1.
  PostProcessor();
  /// The "post_processor" of a tokenizer.json, which may be null. Ids must be below `vocab_size`.
  /// Throws std::runtime_error, beginning with `source`, for anything unsupported.
  PostProcessor(const Json& part, const std::string& source, Index vocab_size);

  /// Without special tokens the texts alone, still with their type ids.
  Encoding single(Ids text, bool add_special_tokens) const;
  Encoding pair(Ids first, Ids second, bool add_special_tokens) const;

 private:
  enum class Content { special, first, second };
  struct Part {
    Content content;
    Ids ids;  // of special tokens
    std::int32_t type_id;
  };
  using Parts = std::vector<Part>;

  void read(const Json& part, const std::string& source, Index vocab_size);
  void read_template(const Json& part, const std::string& source, Index vocab_size);
  void read_classic(const Json& part, const std::string& source, Index vocab_size);
  static Encoding assemble(const Parts& parts, const Ids& first, const Ids& second,
                           bool add_special_tokens);

  Parts single_, pair_;
  bool read_ = false;  // whether a part that adds tokens has been read
};

}  // namespace rapt::detail
