// Stands in for src/formats/tokenizer.cpp until it is there: what it defines takes precedence.

#include "rapt/tokenizer.h"

namespace rapt {

#define RAPT_STAND_IN [[gnu::weak]]

RAPT_STAND_IN Tokenizer Tokenizer::bytes() { return Tokenizer(std::shared_ptr<const Body>()); }
RAPT_STAND_IN Index Tokenizer::entries() const { return 258; }
RAPT_STAND_IN std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  return ids;
}
RAPT_STAND_IN std::optional<std::int32_t> Tokenizer::end() const { return 256; }
RAPT_STAND_IN std::optional<std::int32_t> Tokenizer::padding() const { return 257; }
RAPT_STAND_IN std::optional<std::int32_t> Tokenizer::id_of(std::string_view) const { return {}; }

}  // namespace rapt
