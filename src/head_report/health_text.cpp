#include <algorithm>

#include "base/check.h"
#include "families/pretrained.h"
#include "head_report/health_advice.h"
#include "rapt/health.h"

namespace rapt {
namespace {

/// Positions end here, whatever one asks for; 0: nowhere.
Index last_position(const ModelConfig& config) {
  using enum ModelConfig::Positions;
  if (config.positions == learned) return config.max_tokens;
  if (config.positions == axial) return config.axial_rows * config.axial_columns;
  return 0;
}

/// What is read of a text, or of ids if there are some.
class Reader {
 public:
  Reader(const Pretrained& loaded, Index limit) : loaded_(loaded), limit_(limit) {
    check(limit >= 0, "examine: a limit of ", limit, " tokens, expected 1 or more, or 0 for none");
  }

  std::vector<std::int32_t> read(const char* what, const std::string& text,
                                 std::vector<std::int32_t> ids) const {
    check(text.empty() || ids.empty(), "examine: a ", what, " and ids of it, expected one of them");
    check(!text.empty() || !ids.empty(), "examine: the ", what, " is empty, expected some words");
    if (ids.empty()) {
      check(
          loaded_.tokenizer.has_value(),
          "examine: the model has no tokenizer to read a text with, expected ids (--ids): numbers "
          "from 0 to ",
          loaded_.model.config().vocabulary - 1);
      ids = prompt_ids(loaded_, text);
      if (limit_ > 0 && std::ssize(ids) > limit_) cut_framed(ids, bare(text), limit_);
    }
    check_ids(ids);
    if (limit_ > 0) ids.resize(std::min(ids.size(), static_cast<std::size_t>(limit_)));
    check_length(what, std::ssize(ids));
    return ids;
  }

 private:
  std::vector<std::int32_t> bare(const std::string& text) const {
    EncodeOptions how;
    how.frame = false;
    return loaded_.tokenizer->encode(text, how).ids;
  }
  void check_ids(const std::vector<std::int32_t>& ids) const {
    const Index vocabulary = loaded_.model.config().vocabulary;
    for (const std::int32_t id : ids)
      check(id >= 0 && id < vocabulary, "examine: token ", id, ", expected 0 to ", vocabulary - 1);
  }
  void check_length(const char* what, Index tokens) const {
    const Index end = last_position(loaded_.model.config());
    const Index made_for = end > 0 ? end : loaded_.model.config().max_tokens;
    const bool asked = limit_ > 0 && end == 0;  // for more than the model knows
    check(tokens <= made_for || asked || limit_ == 0, "examine: a limit of ", limit_,
          " tokens, but the model reads ", made_for, ", expected no more (--limit ", made_for, ")");
    check(tokens <= made_for || asked, "examine: the ", what, " has ", tokens,
          " tokens and the model reads ", made_for, ", expected no more; a limit of ", made_for,
          " (--limit ", made_for, ") reads the first of them");
  }

  const Pretrained& loaded_;
  Index limit_;
};

/// What each token adds to the text. Parts of a character are with the last of them.
std::vector<std::string> texts_of(const Pretrained& loaded, const std::vector<std::int32_t>& ids) {
  std::vector<std::string> texts;
  std::optional<TextStream> stream;
  if (loaded.tokenizer) stream.emplace(*loaded.tokenizer, DecodeOptions{.special = true});
  for (const std::int32_t id : ids)
    texts.push_back(stream ? stream->add(id) : std::to_string(id) + " ");
  if (stream && !texts.empty()) texts.back() += stream->finish();
  return texts;
}

/// What the decoder of an encoder-decoder reads: the token that it starts with, and the text.
std::vector<std::int32_t> target_ids(const Pretrained& loaded, const HealthText& text) {
  check(!text.target.empty() || !text.target_ids.empty(),
        "examine: the model is an encoder-decoder, expected a text for its decoder too (--target)");
  const ModelTokens& special = loaded.special;
  std::vector<std::int32_t> ids = {special.decoder_start.value_or(special.padding.value_or(0))};
  std::vector<std::int32_t> more = text.target_ids;
  if (!text.target.empty()) {
    check(loaded.tokenizer.has_value(), "examine: the model has no tokenizer, expected ids");
    more = loaded.tokenizer->encode(text.target);
  }
  ids.insert(ids.end(), more.begin(), more.end());
  return ids;
}

}  // namespace

ModelHealth examine(Pretrained& loaded, const HealthText& text, const HealthOptions& options,
                    const Context& context) {
  const bool pairs = loaded.model.config().kind == ModelConfig::Kind::encoder_decoder;
  check(pairs || (text.target.empty() && text.target_ids.empty()),
        "examine: a text for the decoder of an encoder-decoder, which the model is not");
  const Reader reader(loaded, text.limit);
  std::vector<std::int32_t> ids = reader.read("text", text.text, text.ids), sources;
  if (pairs) {
    sources = std::move(ids);
    ids = reader.read("target", "", target_ids(loaded, text));
  }
  ModelHealth health = examine(loaded.model, Tokens::one(ids),
                               pairs ? Tokens::one(sources) : Tokens{}, options, context);
  health.model = loaded.family;
  health.texts = texts_of(loaded, ids);
  health.source_texts = texts_of(loaded, sources);
  health.advice = lab::advice_on(health);  // now that it can name tokens
  return health;
}

}  // namespace rapt
