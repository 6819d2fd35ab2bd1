#include "text/stages/pre_tokenizer.h"

#include <algorithm>

#include "base/io/check_input.h"
#include "base/sizes.h"
#include "formats/config/fields.h"
#include "text/stages/byte_letters.h"
#include "text/stages/split_joiner.h"
#include "text/stages/text_pattern.h"
#include "text/stages/word_cutter.h"
#include "text/unicode/characters.h"
#include "text/unicode/unicode.h"

namespace rapt::detail {
namespace {

using Next = PreTokenizerStep::Next;

Piece part_of(Piece piece, std::string_view text) {
  const auto begin = to_size(text.data() - piece.text.data());
  return {text, piece.front > begin ? piece.front - begin : 0};
}

/// Each character that the predicate accepts is a match of its own.
template <class Accepts>
void split_characters(Piece piece, const Accepts& accepts, SplitBehavior behavior,
                      const Next& next) {
  const auto visit = [&](std::string_view text) { next(part_of(piece, text)); };
  SplitJoiner joiner(behavior, visit);
  const std::string_view text = piece.text;
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Character character = first_character(text.substr(at));
    if (accepts(character.code)) {
      if (at > done) joiner.add(text.substr(done, at - done), false);
      joiner.add(text.substr(at, character.length), true);
      done = at + character.length;
    }
    at += character.length;
  }
  if (done < text.size()) joiner.add(text.substr(done), false);
  joiner.finish();
}

class SpacePreTokenizer : public PreTokenizerStep {
 public:
  void run(Piece piece, const Next& next) const override {
    split_characters(piece, is_space, SplitBehavior::removed, next);
  }
};

class BertPreTokenizer : public PreTokenizerStep {
 public:
  void run(Piece piece, const Next& next) const override {
    const std::string_view text = piece.text;
    std::size_t begin = 0;
    const auto word_until = [&](std::size_t end) {
      if (end > begin) next(part_of(piece, text.substr(begin, end - begin)));
    };
    for (std::size_t at = 0; at < text.size();) {
      const Character character = first_character(text.substr(at));
      const std::size_t end = at + character.length;
      const bool space = is_space(character.code);
      if (space || is_punctuation(character.code)) {
        word_until(at);
        begin = at;
        if (!space) word_until(end);
        begin = end;
      }
      at = end;
    }
    word_until(text.size());
  }
};

/// Runs of word characters and runs of others; spaces are dropped.
class WhitespacePreTokenizer : public PreTokenizerStep {
 public:
  void run(Piece piece, const Next& next) const override {
    enum class Kind { space, word, other };
    const std::string_view text = piece.text;
    std::size_t begin = 0;
    Kind last = Kind::space;
    for (std::size_t at = 0; at <= text.size();) {
      const bool end = at == text.size();
      const Character character = end ? Character{U' ', 1} : first_character(text.substr(at));
      const Kind kind = is_word(character.code)    ? Kind::word
                        : is_space(character.code) ? Kind::space
                                                   : Kind::other;
      if (kind != last || end) {
        if (last != Kind::space) next(part_of(piece, text.substr(begin, at - begin)));
        begin = at;
        last = kind;
      }
      at += character.length;
    }
  }
};

/// Splits at characters of a class: punctuation, digits.
class CharacterPreTokenizer : public PreTokenizerStep {
 public:
  CharacterPreTokenizer(bool (*belongs)(char32_t), SplitBehavior behavior)
      : belongs_(belongs), behavior_(behavior) {}
  void run(Piece piece, const Next& next) const override {
    split_characters(piece, belongs_, behavior_, next);
  }

 private:
  bool (*belongs_)(char32_t);
  SplitBehavior behavior_;
};

class DelimiterPreTokenizer : public PreTokenizerStep {
 public:
  explicit DelimiterPreTokenizer(char32_t delimiter) : delimiter_(delimiter) {}
  void run(Piece piece, const Next& next) const override {
    split_characters(
        piece, [&](char32_t code) { return code == delimiter_; }, SplitBehavior::removed, next);
  }

 private:
  char32_t delimiter_;
};

class SplitPreTokenizer : public PreTokenizerStep {
 public:
  struct Options {
    SplitBehavior behavior;
    bool invert;  // what is not matched counts as a match
  };
  SplitPreTokenizer(TextPattern pattern, Options options)
      : pattern_(std::move(pattern)), options_(options) {}
  void run(Piece piece, const Next& next) const override {
    const auto visit = [&](std::string_view text) { next(part_of(piece, text)); };
    SplitJoiner joiner(options_.behavior, visit);
    const auto add = [&](std::string_view part, bool match) {
      joiner.add(part, match != options_.invert);
    };
    pattern_.for_each(piece.text, std::cref(add));
    joiner.finish();
  }

 private:
  TextPattern pattern_;
  Options options_;
};

/// Spaces become a visible letter, one more may be put first, and words begin with it.
class MetaspacePreTokenizer : public PreTokenizerStep {
 public:
  enum class Prepend { always, first, never };
  struct Options {
    std::string replacement;
    Prepend prepend;
    bool split;
  };
  explicit MetaspacePreTokenizer(Options options) : options_(std::move(options)) {}

  void run(Piece piece, const Next& next) const override {
    std::string text;
    std::size_t front = 0;
    for (std::size_t i = 0; i < piece.text.size(); ++i) {
      if (piece.text[i] == ' ')
        text += options_.replacement;
      else
        text += piece.text[i];
      if (i < piece.front) front = text.size();
    }
    const bool wanted =
        options_.prepend == Prepend::always || (options_.prepend == Prepend::first && front > 0);
    if (wanted && !text.starts_with(options_.replacement)) {
      text.insert(0, options_.replacement);
      if (front > 0) front += options_.replacement.size();  // counts as the first character
    }
    const Piece whole{text, front};
    if (!options_.split) return next(whole);
    const char32_t code = first_character(options_.replacement).code;
    split_characters(
        whole, [&](char32_t other) { return other == code; }, SplitBehavior::merged_with_next,
        next);
  }

 private:
  Options options_;
};

/// Gives bytes, or the letters that stand for them if other steps follow.
class BytePreTokenizer : public PreTokenizerStep {
 public:
  struct Options {
    bool prefix_space, cut, letters;
  };
  explicit BytePreTokenizer(Options options)
      : cutter_(options.cut ? Cut::gpt2 : Cut::none),
        prefix_(options.prefix_space),
        letters_(options.letters) {}
  void run(Piece piece, const Next& next) const override {
    std::string text;
    if (prefix_ && !piece.text.starts_with(' ')) {
      text = " " + std::string(piece.text);
      piece.text = text;
    }
    const auto visit = [&](std::string_view word) {
      if (!letters_) return next({word, 0});
      const std::string letters = letters_of(word);
      next({letters, 0});
    };
    cutter_.for_each_word(piece.text, std::cref(visit));
  }

 private:
  WordCutter cutter_;
  bool prefix_, letters_;
};

SplitBehavior behavior_of(Fields& fields, std::optional<std::string> otherwise = {}) {
  const std::vector<std::string> words{"Removed", "Isolated", "MergedWithPrevious",
                                       "MergedWithNext", "Contiguous"};
  const std::string word = fields.choice("behavior", words, std::move(otherwise));
  return static_cast<SplitBehavior>(std::find(words.begin(), words.end(), word) - words.begin());
}

std::string one_character(Fields& fields, const std::string& key, const std::string& otherwise) {
  std::string text = fields.text(key, otherwise);
  if (text.empty() || first_character(text).length != text.size())
    fields.fail(key, "expected one character");
  return text;
}

std::shared_ptr<const PreTokenizerStep> metaspace(Fields& fields) {
  using Prepend = MetaspacePreTokenizer::Prepend;
  MetaspacePreTokenizer::Options options{
      .replacement = one_character(fields, "replacement", "\u2581"),
      .prepend = Prepend::always,
      .split = fields.boolean("split", true)};
  if (fields.has("prepend_scheme")) {
    const std::string word = fields.choice("prepend_scheme", {"always", "first", "never"});
    options.prepend = word == "always"  ? Prepend::always
                      : word == "first" ? Prepend::first
                                        : Prepend::never;
  } else if (!fields.boolean("add_prefix_space", true)) {  // older files
    options.prepend = Prepend::never;
  }
  return std::make_shared<MetaspacePreTokenizer>(options);
}

enum class Followed { yes, no };

std::shared_ptr<const PreTokenizerStep> pre_tokenizer_step(const std::string& type, Fields& fields,
                                                           const std::string& source,
                                                           Followed followed) {
  if (type == "BertPreTokenizer") return std::make_shared<BertPreTokenizer>();
  if (type == "WhitespaceSplit") return std::make_shared<SpacePreTokenizer>();
  if (type == "Whitespace") return std::make_shared<WhitespacePreTokenizer>();
  if (type == "Punctuation")
    return std::make_shared<CharacterPreTokenizer>(is_punctuation, behavior_of(fields, "Isolated"));
  if (type == "Metaspace") return metaspace(fields);
  if (type == "Digits")
    return std::make_shared<CharacterPreTokenizer>(
        is_numeric, fields.boolean("individual_digits", false) ? SplitBehavior::isolated
                                                               : SplitBehavior::contiguous);
  if (type == "CharDelimiterSplit")
    return std::make_shared<DelimiterPreTokenizer>(
        first_character(one_character(fields, "delimiter", "")).code);
  if (type == "ByteLevel")
    return std::make_shared<BytePreTokenizer>(
        BytePreTokenizer::Options{.prefix_space = fields.boolean("add_prefix_space", true),
                                  .cut = fields.boolean("use_regex", true),
                                  .letters = followed == Followed::yes});
  if (type == "Split")
    return std::make_shared<SplitPreTokenizer>(
        TextPattern::read(fields.value("pattern"), source + ": pre_tokenizer.pattern"),
        SplitPreTokenizer::Options{.behavior = behavior_of(fields),
                                   .invert = fields.boolean("invert", false)});
  fail_input(source, ": pre_tokenizer of type ", printable(type), " is not supported");
}

/// The types of all steps, Sequences opened.
void list_parts(const Json& part, const std::string& source, std::vector<const Json*>& parts) {
  Fields fields(part, source, "pre_tokenizer");
  if (fields.text("type") != "Sequence") {
    parts.push_back(&part);
    return;
  }
  check_input(part.contains("pretokenizers") && part["pretokenizers"].is_array(), source,
              ": pre_tokenizer.pretokenizers is not a list");
  for (const Json& inner : part["pretokenizers"]) list_parts(inner, source, parts);
  check_input(parts.size() <= 30, source, ": pre_tokenizer has more than 30 steps");
}

}  // namespace

PreTokenizer::PreTokenizer(const Json& part, const std::string& source) {
  if (part.is_null()) return;
  std::vector<const Json*> parts;
  list_parts(part, source, parts);
  for (const Json* one : parts) {
    Fields fields(*one, source, "pre_tokenizer");
    const std::string type = fields.text("type");
    check_input(!bytes_ || (type != "Metaspace" && type != "ByteLevel"), source,
                ": pre_tokenizer has ", printable(type),
                " after ByteLevel, expected steps that only split there");
    letters_ = bytes_;
    steps_.push_back(pre_tokenizer_step(type, fields, source,
                                        one == parts.back() ? Followed::no : Followed::yes));
    bytes_ = bytes_ || type == "ByteLevel";
  }
}

void PreTokenizer::run(std::size_t step, Piece piece, const Visit& visit) const {
  if (piece.text.empty()) return;
  if (step == steps_.size())
    return visit(letters_ ? bytes_of_letters(piece.text).value() : piece.text);
  const auto next = [&](Piece part) { run(step + 1, part, visit); };
  steps_[step]->run(piece, std::cref(next));
}

}  // namespace rapt::detail
