#include <algorithm>

#include "base/check.h"
#include "base/sizes.h"
#include "families/family_config.h"
#include "head_report/head_advice.h"
#include "rapt/models/heads.h"

namespace rapt {
using namespace detail;
namespace {

/// The number of trained positions; none: no limit.
std::optional<Index> trained_positions(const ModelConfig& config) {
  using enum ModelConfig::Positions;
  if (config.positions == learned) return config.max_positions;
  if (config.positions == axial) return *config.axial_rows * *config.axial_columns;
  return std::nullopt;
}

/// Reads a text, or ids if there are some.
class Reader {
 public:
  Reader(const Pretrained& loaded, std::optional<Index> limit) : loaded_(loaded), limit_(limit) {
    check(!limit || *limit >= 1, "heads: a limit of ", limit.value_or(0),
          " tokens, expected 1 or more");
  }

  std::vector<std::int32_t> read(const char* what, const std::string& text,
                                 std::vector<std::int32_t> ids) const {
    check(text.empty() || ids.empty(), "heads: a ", what, " and ids of it, expected one of them");
    check(!text.empty() || !ids.empty(), "heads: the ", what, " is empty, expected some words");
    if (ids.empty()) {
      check(
          loaded_.tokenizer.has_value(),
          "heads: the model has no tokenizer to read a text with, expected ids: numbers from 0 to ",
          loaded_.model.config().vocab_size.value_or(0) - 1);
      ids = prompt_ids(loaded_, text);
      if (limit_ && std::ssize(ids) > *limit_) truncate_ids(ids, bare(text), *limit_);
    }
    check_ids(ids);
    if (limit_ && std::ssize(ids) > *limit_) ids.resize(to_size(*limit_));
    check_length(what, std::ssize(ids));
    return ids;
  }

 private:
  std::vector<std::int32_t> bare(const std::string& text) const {
    return loaded_.tokenizer->encode(text, EncodeOptions{.add_special_tokens = false}).ids;
  }
  void check_ids(const std::vector<std::int32_t>& ids) const {
    const Index vocab_size = loaded_.model.config().vocab_size.value_or(0);
    for (const std::int32_t id : ids)
      check(id >= 0 && id < vocab_size, "heads: token ", id, ", expected 0 to ", vocab_size - 1);
  }
  void check_length(const char* what, Index tokens) const {
    const std::optional<Index> positions = trained_positions(loaded_.model.config());
    const Index most = positions.value_or(loaded_.model.config().max_positions);
    const bool allowed = limit_ && !positions;  // an explicit limit may exceed the trained context
    check(tokens <= most || allowed || !limit_, "heads: a limit of ", limit_.value_or(0),
          " tokens, but the model reads ", most, ", expected no more");
    check(tokens <= most || allowed, "heads: the ", what, " has ", tokens,
          " tokens and the model reads ", most, ", expected no more; a limit of ", most,
          " reads the first of them");
  }

  const Pretrained& loaded_;
  std::optional<Index> limit_;
};

/// What each token adds to the text. A character of several tokens is with the last of them.
std::vector<std::string> texts_of(const Pretrained& loaded, const std::vector<std::int32_t>& ids) {
  std::vector<std::string> texts;
  std::optional<DecodeStream> stream;
  if (loaded.tokenizer)
    stream.emplace(*loaded.tokenizer, DecodeOptions{.skip_special_tokens = false});
  for (const std::int32_t id : ids)
    texts.push_back(stream ? stream->step(id) : std::to_string(id) + " ");
  if (stream && !texts.empty()) texts.back() += stream->finish();
  return texts;
}

/// What the decoder of an encoder-decoder reads: its start token, then the text.
std::vector<std::int32_t> target_ids(const Pretrained& loaded, const HeadReportText& text) {
  check(!text.target.empty() || !text.target_ids.empty(),
        "heads: the model is an encoder-decoder, expected a target for its decoder too");
  const ModelTokens& special = loaded.special_tokens;
  std::vector<std::int32_t> ids = {special.decoder_start.value_or(special.pad.value_or(0))};
  std::vector<std::int32_t> more = text.target_ids;
  if (!text.target.empty()) {
    check(loaded.tokenizer.has_value(), "heads: the model has no tokenizer, expected ids");
    more = loaded.tokenizer->encode(text.target, {.add_special_tokens = false}).ids;
  }
  ids.insert(ids.end(), more.begin(), more.end());
  return ids;
}

}  // namespace

HeadReport heads(Pretrained& loaded, const HeadReportText& text, const HeadReportOptions& options,
                 const Context& context) {
  const bool pairs = loaded.model.config().kind == ModelConfig::Kind::encoder_decoder;
  check(pairs || (text.target.empty() && text.target_ids.empty()),
        "heads: a target given, expected none: the model is no encoder-decoder");
  const Reader reader(loaded, text.limit);
  std::vector<std::int32_t> ids = reader.read("text", text.text, text.ids), sources;
  if (pairs) {
    sources = std::move(ids);
    ids = reader.read("target", "", target_ids(loaded, text));
  }
  HeadReport report = heads(loaded.model, Tokens::one(ids), pairs ? Tokens::one(sources) : Tokens{},
                            options, context);
  report.model = loaded.family;
  report.texts = texts_of(loaded, ids);
  report.source_texts = texts_of(loaded, sources);
  report.advice = advice_on(report);  // now that tokens have texts
  return report;
}

}  // namespace rapt
