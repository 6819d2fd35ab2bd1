#include <gtest/gtest.h>

#include "families/gguf/gguf_model.h"
#include "formats/tensors/gguf_file.h"
#include "support/gguf_bytes.h"
#include "support/temporary_folder.h"

namespace rapt::test {
using namespace detail;
namespace {

/// Of a file with word pieces and the switches given.
class WordPieces {
 public:
  explicit WordPieces(const std::vector<std::pair<std::string, bool>>& switches) {
    GgufBytes b;
    b.begin(0, 3 + switches.size())
        .text_entry("tokenizer.ggml.model", "bert")
        .entry<std::uint32_t>("tokenizer.ggml.unknown_token_id", 4, 0)
        .texts_entry("tokenizer.ggml.tokens", {"[UNK]", "[CLS]", "[SEP]", "\u2581Haus",
                                               "\u2581haus", "\u2581\u00fcber", "\u2581uber"});
    for (const auto& [key, on] : switches)
      b.entry<std::uint8_t>("tokenizer.ggml.normalizer." + key, 7, on);
    put(folder_ / "file.gguf", b.pad().bytes());
  }
  std::vector<std::int32_t> ids(const std::string& text) const {
    return gguf_tokenizer(file().metadata(), "file")
        .encode(text, {.add_special_tokens = false})
        .ids;
  }
  std::string notice() const { return gguf_tokenizer_warning(file().metadata(), "file"); }

 private:
  GgufFile file() const { return GgufFile(folder_ / "file.gguf"); }
  TemporaryFolder folder_;
};

TEST(GgufTokenizer, WordPiecesKeepCapitalsAndAccentsIfTheFileSaysSo) {
  using Ids = std::vector<std::int32_t>;
  const std::string text = "Haus \u00fcber";
  EXPECT_EQ(WordPieces({}).ids(text), (Ids{4, 6}));
  EXPECT_EQ(WordPieces({{"lowercase", false}}).ids(text), (Ids{3, 5}));
  EXPECT_EQ(WordPieces({{"lowercase", false}, {"strip_accents", true}}).ids(text), (Ids{3, 6}));
  EXPECT_EQ(WordPieces({{"strip_accents", false}}).ids(text), (Ids{4, 5}));
}

TEST(GgufTokenizer, CapitalsThatTheFileDoesNotSpeakOfAreTold) {
  EXPECT_NE(WordPieces({}).notice().find("Haus"), std::string::npos);
  EXPECT_EQ(WordPieces({{"lowercase", true}}).notice(), "");
  EXPECT_EQ(WordPieces({{"lowercase", false}}).notice(), "");
}

TEST(GgufTokenizer, MergesAreNeededWhereTokensAreMadeByThem) {
  const TemporaryFolder folder;
  GgufBytes b;
  b.begin(0, 3)
      .text_entry("tokenizer.ggml.model", "gpt2")
      .text_entry("tokenizer.ggml.pre", "gpt-2")
      .texts_entry("tokenizer.ggml.tokens", {"a", "b", "ab"});
  put(folder / "file.gguf", b.pad().bytes());
  expect_broken([&] { gguf_tokenizer(GgufFile(folder / "file.gguf").metadata(), "file"); },
                {"file: there is no tokenizer.ggml.merges", "single bytes"});
}

}  // namespace
}  // namespace rapt::test
