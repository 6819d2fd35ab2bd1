#include "text/stages/decoder.h"

#include <array>

#include "base/io/check_input.h"
#include "formats/config/fields.h"
#include "text/models/byte_tokens.h"
#include "text/stages/byte_letters.h"
#include "text/stages/text_pattern.h"
#include "text/unicode/characters.h"

namespace rapt::detail {
namespace {

using Tokens = std::vector<std::string>;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::size_t at = text.find(from), done = 0;
  if (at == std::string::npos) return;
  std::string made;
  for (; at != std::string::npos; at = text.find(from, done)) {
    made.append(text, done, at - done).append(to);
    done = at + from.size();
  }
  text = made.append(text, done);
}

std::string concatenated(const Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

class LetterDecoder : public DecoderStep {
 public:
  void run(Tokens& tokens) const override {
    for (std::string& token : tokens)
      if (std::optional<std::string> bytes = bytes_of_letters(token)) token = std::move(*bytes);
    tokens = {concatenated(tokens)};
  }
};

/// Bytes that a step may insert for each match.
constexpr std::size_t longest_content = 100;

std::size_t bytes_of(const Tokens& tokens) {
  std::size_t bytes = 0;
  for (const std::string& token : tokens) bytes += token.size();
  return bytes;
}

/// English writes no space before these.
void clean(std::string& token) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> rules{
      {{" .", "."},
       {" ?", "?"},
       {" !", "!"},
       {" ,", ","},
       {" ' ", "'"},
       {" n't", "n't"},
       {" 'm", "'m"},
       {" do not", " don't"},
       {" 's", "'s"},
       {" 've", "'ve"},
       {" 're", "'re"}}};
  for (const auto& [from, to] : rules) replace_all(token, from, to);
}

class WordPieceDecoder : public DecoderStep {
 public:
  explicit WordPieceDecoder(Fields fields)
      : prefix_(fields.text("prefix", "##")), clean_(fields.boolean("cleanup", true)) {}
  void run(Tokens& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0 && tokens[i].starts_with(prefix_))
        tokens[i].erase(0, prefix_.size());
      else if (i > 0)
        tokens[i].insert(0, " ");
      if (clean_) clean(tokens[i]);
    }
  }

 private:
  std::string prefix_;
  bool clean_;
};

class MetaspaceDecoder : public DecoderStep {
 public:
  explicit MetaspaceDecoder(Fields fields)
      : replacement_(fields.text("replacement", "\u2581")),
        prefixed_(fields.has("prepend_scheme") ? fields.text("prepend_scheme") != "never"
                                               : fields.boolean("add_prefix_space", true)) {
    if (replacement_.empty()) fields.fail("replacement", "expected one character");
  }
  void run(Tokens& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      replace_all(tokens[i], replacement_, i == 0 && prefixed_ ? "" : " ");
  }

 private:
  std::string replacement_;
  bool prefixed_;
};

class BpeDecoder : public DecoderStep {
 public:
  explicit BpeDecoder(Fields fields) : suffix_(fields.text("suffix", "</w>")) {}
  void run(Tokens& tokens) const override {
    for (std::size_t i = 0; i < tokens.size() && !suffix_.empty(); ++i)
      replace_all(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
  }

 private:
  std::string suffix_;
};

/// Neighbouring byte tokens are one text; if they are not UTF-8, each is U+FFFD.
class ByteTokenDecoder : public DecoderStep {
 public:
  void run(Tokens& tokens) const override {
    Tokens result;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (valid_length(bytes) == bytes.size())
        result.push_back(bytes);
      else
        result.insert(result.end(), bytes.size(), "\uFFFD");
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const std::optional<std::uint8_t> byte = byte_of_token(token)) {
        bytes += static_cast<char>(*byte);
        continue;
      }
      flush();
      result.push_back(std::move(token));
    }
    flush();
    tokens = std::move(result);
  }
};

class FuseDecoder : public DecoderStep {
 public:
  void run(Tokens& tokens) const override { tokens = {concatenated(tokens)}; }
};

class StripDecoder : public DecoderStep {
 public:
  explicit StripDecoder(Fields fields)
      : content_(fields.text("content")),
        start_(fields.integer("start", {0, 1000}, 0)),
        stop_(fields.integer("stop", {0, 1000}, 0)) {
    if (content_.empty()) fields.fail("content", "expected one character");
  }
  void run(Tokens& tokens) const override {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (Index i = 0; i < start_ && rest.starts_with(content_); ++i)
        rest.remove_prefix(content_.size());
      for (Index i = 0; i < stop_ && rest.ends_with(content_); ++i)
        rest.remove_suffix(content_.size());
      token = std::string(rest);
    }
  }

 private:
  std::string content_;
  Index start_, stop_;
};

class ReplaceDecoder : public DecoderStep {
 public:
  ReplaceDecoder(TextPattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void run(Tokens& tokens) const override {
    for (std::string& token : tokens) {
      std::string result;
      pattern_.for_each(token, [&](std::string_view part, bool match) {
        result += match ? std::string_view(content_) : part;
      });
      token = std::move(result);
    }
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

std::shared_ptr<const DecoderStep> decoder_step(const std::string& type, Fields& fields,
                                                const std::string& source) {
  if (type == "ByteLevel") return std::make_shared<LetterDecoder>();
  if (type == "WordPiece") return std::make_shared<WordPieceDecoder>(fields);
  if (type == "Metaspace") return std::make_shared<MetaspaceDecoder>(fields);
  if (type == "BPEDecoder") return std::make_shared<BpeDecoder>(fields);
  if (type == "ByteFallback") return std::make_shared<ByteTokenDecoder>();
  if (type == "Fuse") return std::make_shared<FuseDecoder>();
  if (type == "Strip") return std::make_shared<StripDecoder>(fields);
  if (type == "Replace") {
    const std::string content = fields.text("content");
    if (content.size() > longest_content)
      fields.fail("content", "expected at most " + std::to_string(longest_content) + " bytes");
    return std::make_shared<ReplaceDecoder>(
        TextPattern::read(fields.value("pattern"), source + ": decoder.pattern"), content);
  }
  fail_input(source, ": decoder of type ", printable(type), " is not supported");
}

void add_steps(const Json& part, const std::string& source,
               std::vector<std::shared_ptr<const DecoderStep>>& steps) {
  Fields fields(part, source, "decoder");
  const std::string type = fields.text("type");
  if (type != "Sequence") {
    steps.push_back(decoder_step(type, fields, source));
    return;
  }
  const Json& list = fields.value("decoders");
  check_input(list.is_array(), source, ": decoder.decoders is not a list");
  for (const Json& inner : list) add_steps(inner, source, steps);
  check_input(steps.size() <= 100, source, ": decoder has more than 100 steps");
}

}  // namespace

Decoder::Decoder(const Json& part, const std::string& source) : words_(part.is_null()) {
  if (!part.is_null()) add_steps(part, source, steps_);
}

std::string Decoder::text(std::vector<std::string> tokens) const {
  if (words_)
    for (std::size_t i = 1; i < tokens.size(); ++i) tokens[i].insert(0, " ");
  // Steps multiply each other's output; this is more than any language needs.
  const std::size_t most = 64 * bytes_of(tokens) + 65536;
  for (const auto& step : steps_) {
    step->run(tokens);
    check_input(bytes_of(tokens) <= most, "tokenizer: its decoder makes more than ", most,
                " bytes of a text");
  }
  return concatenated(tokens);
}

}  // namespace rapt::detail
