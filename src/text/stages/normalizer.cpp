#include "text/stages/normalizer.h"

#include <algorithm>

#include "base/io/check_input.h"
#include "base/sizes.h"
#include "formats/config/fields.h"
#include "text/stages/byte_letters.h"
#include "text/stages/charsmap.h"
#include "text/stages/text_pattern.h"
#include "text/unicode/characters.h"
#include "text/unicode/unicode.h"

namespace rapt::detail {
namespace {

constexpr Index longest_affix = 1000;  // bytes that a step may insert for each match

/// Joins what `change` makes of each character: nothing, itself or others.
template <class Change>
NormalText changed_characters(const NormalText& in, const Change& change) {
  NormalText out;
  out.text.reserve(in.text.size());
  for_each_character(in.text, [&](char32_t code, std::string_view bytes) {
    change(out.text, code, bytes);
    if (bytes.data() < in.text.data() + in.front) out.front = out.text.size();
  });
  return out;
}

template <class Keep>
NormalText kept_characters(const NormalText& in, const Keep& keep) {
  return changed_characters(in, [&](std::string& out, char32_t code, std::string_view bytes) {
    if (keep(code)) out += bytes;
  });
}

NormalText formed(const NormalText& in, Form form) {
  NormalText out{normal_form(in.text, form), 0};
  if (in.front == 0 || out.text.empty()) return out;
  // Up to where it differs from the first character's own form; later marks may come in between.
  const std::string front = normal_form(in.text.substr(0, in.front), form);
  const auto [end, ignored] =
      std::mismatch(out.text.begin(), out.text.end(), front.begin(), front.end());
  out.front = to_size(end - out.text.begin());
  while (out.front > 0 && out.front < out.text.size() &&
         (static_cast<unsigned char>(out.text[out.front]) & 0xC0) == 0x80)
    --out.front;
  out.front = std::max(out.front, first_character(out.text).length);
  return out;
}

NormalText lowered(const NormalText& in) {
  return changed_characters(in, [](std::string& out, char32_t code, std::string_view) {
    if (code < 0x80)
      out += static_cast<char>(code >= 'A' && code <= 'Z' ? code + 32 : code);
    else
      append_lower(out, code);
  });
}

class BertNormalizer : public NormalizerStep {
 public:
  explicit BertNormalizer(Fields fields)
      : clean_(fields.boolean("clean_text", true)),
        ideographs_(fields.boolean("handle_chinese_chars", true)),
        lower_(fields.boolean("lowercase", true)),
        accents_(fields.boolean("strip_accents", lower_)) {}

  NormalText run(NormalText in) const override {
    if (clean_ || ideographs_) in = spaced(in);
    if (accents_) {
      in = formed(in, Form::nfd);
      in = kept_characters(in, [](char32_t code) { return code < 0x300 || !is_accent(code); });
    }
    return lower_ ? lowered(in) : in;
  }

 private:
  NormalText spaced(const NormalText& in) const {
    return changed_characters(in, [&](std::string& out, char32_t code, std::string_view bytes) {
      if (clean_) {
        if (code > 0x20 && code < 0x7F) {
          out += static_cast<char>(code);
          return;
        }
        const bool line = code == '\t' || code == '\n' || code == '\r';
        if (!line && (code == replacement_character || is_control(code))) return;
        if (line || is_space(code)) {
          out += ' ';
          return;
        }
      }
      if (ideographs_ && is_ideograph(code))
        (out += ' ').append(bytes) += ' ';
      else
        out += bytes;
    });
  }
  bool clean_, ideographs_, lower_, accents_;
};

class FormNormalizer : public NormalizerStep {
 public:
  explicit FormNormalizer(Form form) : form_(form) {}
  NormalText run(NormalText in) const override { return formed(in, form_); }

 private:
  Form form_;
};

class LowerNormalizer : public NormalizerStep {
 public:
  NormalText run(NormalText in) const override { return lowered(in); }
};

class AccentNormalizer : public NormalizerStep {
 public:
  NormalText run(NormalText in) const override {
    return kept_characters(in, [](char32_t code) { return code < 0x300 || !is_mark(code); });
  }
};

/// What Google's translation models do to controls and spaces.
class NmtNormalizer : public NormalizerStep {
 public:
  NormalText run(NormalText in) const override {
    return changed_characters(in, [](std::string& out, char32_t code, std::string_view bytes) {
      const bool space = code == 0x9 || code == 0xA || code == 0xC || code == 0xD ||
                         code == 0x1680 || (code >= 0x200B && code <= 0x200F) || code == 0x2028 ||
                         code == 0x2029 || code == 0x2581 || code == 0xFEFF || code == 0xFFFD;
      const bool gone = (code > 0 && code < 0x20) || code == 0x7F || code == 0x8F || code == 0x9F;
      if (space)
        out += ' ';
      else if (!gone)
        out += bytes;
    });
  }
};

/// Steps multiply each other's output; this is more than any language needs.
std::size_t most_bytes(std::size_t text_bytes) { return 64 * text_bytes + 65536; }

class ReplaceNormalizer : public NormalizerStep {
 public:
  ReplaceNormalizer(TextPattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  NormalText run(NormalText in) const override {
    NormalText out{{}, 0, in.most};
    pattern_.for_each(in.text, [&](std::string_view part, bool match) {
      const auto begin = to_size(part.data() - in.text.data());
      // The replacement counts as the last character of the match.
      const bool front = match ? begin + part.size() <= in.front : begin < in.front;
      if (front && out.front == out.text.size())
        out.front += match ? content_.size() : std::min(part.size(), in.front - begin);
      out.add(match ? std::string_view(content_) : part);
    });
    return out;
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

class PrependNormalizer : public NormalizerStep {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  NormalText run(NormalText in) const override {
    if (in.text.empty()) return in;
    in.text.insert(0, prefix_);
    if (in.front > 0) in.front += prefix_.size();
    return in;
  }

 private:
  std::string prefix_;
};

class StripNormalizer : public NormalizerStep {
 public:
  explicit StripNormalizer(Fields fields)
      : left_(fields.boolean("strip_left", true)), right_(fields.boolean("strip_right", true)) {}
  NormalText run(NormalText in) const override {
    std::string_view text = in.text;
    while (left_ && !text.empty() && is_space(first_character(text).code))
      text.remove_prefix(first_character(text).length);
    while (right_ && !text.empty() && is_space(last_character(text).code))
      text.remove_suffix(last_character(text).length);
    const auto lost = to_size(text.data() - in.text.data());
    const std::size_t front = in.front > lost ? in.front - lost : 0;
    return {std::string(text), std::min(front, text.size())};
  }

 private:
  bool left_, right_;
};

class LetterNormalizer : public NormalizerStep {
 public:
  NormalText run(NormalText in) const override {
    return {letters_of(in.text), letters_of(in.text.substr(0, in.front)).size()};
  }
};

using Steps = std::vector<std::shared_ptr<const NormalizerStep>>;

std::string short_text(Fields& fields, const std::string& key) {
  std::string text = fields.text(key);
  if (static_cast<Index>(text.size()) > longest_affix)
    fields.fail(key, "expected at most " + std::to_string(longest_affix) + " bytes");
  return text;
}

std::shared_ptr<const NormalizerStep> normalizer_step(const std::string& type, Fields& fields,
                                                      const std::string& source) {
  if (type == "BertNormalizer") return std::make_shared<BertNormalizer>(fields);
  if (type == "NFC") return std::make_shared<FormNormalizer>(Form::nfc);
  if (type == "NFD") return std::make_shared<FormNormalizer>(Form::nfd);
  if (type == "NFKC") return std::make_shared<FormNormalizer>(Form::nfkc);
  if (type == "NFKD") return std::make_shared<FormNormalizer>(Form::nfkd);
  if (type == "Lowercase") return std::make_shared<LowerNormalizer>();
  if (type == "StripAccents") return std::make_shared<AccentNormalizer>();
  if (type == "Nmt") return std::make_shared<NmtNormalizer>();
  if (type == "Strip") return std::make_shared<StripNormalizer>(fields);
  if (type == "ByteLevel") return std::make_shared<LetterNormalizer>();
  if (type == "Prepend") return std::make_shared<PrependNormalizer>(short_text(fields, "prepend"));
  if (type == "Replace")
    return std::make_shared<ReplaceNormalizer>(
        TextPattern::read(fields.value("pattern"), source + ": normalizer.pattern"),
        short_text(fields, "content"));
  if (type == "Precompiled")
    return std::make_shared<CharsMapStep>(fields.text("precompiled_charsmap", ""), source);
  fail_input(source, ": normalizer of type ", printable(type), " is not supported");
}

void add_steps(const Json& part, const std::string& source, Steps& steps) {
  Fields fields(part, source, "normalizer");
  const std::string type = fields.text("type");
  if (type != "Sequence") {
    steps.push_back(normalizer_step(type, fields, source));
    return;
  }
  const Json& list = fields.value("normalizers");
  check_input(list.is_array(), source, ": normalizer.normalizers is not a list");
  for (const Json& inner : list) add_steps(inner, source, steps);
  check_input(steps.size() <= 100, source, ": normalizer has more than 100 steps");
}

}  // namespace

void NormalText::add(std::string_view bytes) {
  check_input(text.size() <= most && bytes.size() <= most - text.size(),
              "tokenizer: its normalizer makes more than ", most, " bytes of a text");
  text += bytes;
}

Normalizer::Normalizer(const Json& part, const std::string& source) {
  if (!part.is_null()) add_steps(part, source, steps_);
}

NormalText Normalizer::run(std::string_view text) const {
  NormalText result{std::string(text), text.empty() ? 0 : first_character(text).length};
  for (const auto& step : steps_) {
    result.most = most_bytes(text.size());
    result = step->run(std::move(result));
    result.most = most_bytes(text.size());
    result.add("");
  }
  return result;
}

}  // namespace rapt::detail
