#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/check.h"
#include "families/pretrained.h"
#include "families/sentence/sentence.h"

namespace rapt {
namespace {

/// Tokens that are read in one pass: enough for full products, few enough to stay near the core.
constexpr Index tokens_at_once = 2048;

/// The mean of rows [tokens, width], or the first.
void pool(const float* rows, Index tokens, Index width, Pooling::Kind kind, float* to) {
  std::vector<double> sums(static_cast<std::size_t>(width));
  const Index counted = kind == Pooling::Kind::first ? 1 : tokens;
  for (Index t = 0; t < counted; ++t)
    for (Index c = 0; c < width; ++c)
      sums[static_cast<std::size_t>(c)] += static_cast<double>(rows[t * width + c]);
  for (Index c = 0; c < width; ++c)
    to[c] = static_cast<float>(sums[static_cast<std::size_t>(c)] / static_cast<double>(counted));
}

/// Every row to length 1.
void normalize_rows(Tensor& rows) {
  const Index width = rows.shape()[1];
  for (Index r = 0; r < rows.shape()[0]; ++r) {
    float* row = rows.data() + r * width;
    const double squares = std::inner_product(
        row, row + width, row, 0.0, std::plus<>(),
        [](float a, float b) { return static_cast<double>(a) * static_cast<double>(b); });
    const double factor = 1 / std::max(std::sqrt(squares), 1e-12);
    for (Index c = 0; c < width; ++c)
      row[c] = static_cast<float>(static_cast<double>(row[c]) * factor);
  }
}

/// What becomes of pooled rows [texts, width].
Tensor finished(Tensor rows, const Pooling& pooling, const Context& context) {
  for (const Dense& layer : pooling.dense) rows = apply_dense(layer, rows, context);
  if (pooling.normalized) normalize_rows(rows);
  return rows;
}

/// Ids of a text, cut to the length that the model reads, which `cut` is told then; what frames it
/// stays around it.
std::vector<std::int32_t> ids_of(const Pretrained& loaded, const std::string& text,
                                 const std::function<void(Index)>& cut) {
  const Index longest = embed_limit(loaded);
  // Special tokens may be spelled out in a text, as everywhere where such models are used.
  EncodeOptions framed, bare;
  framed.special = bare.special = true;
  bare.frame = false;
  const Tokenizer& tokenizer = *loaded.tokenizer;
  std::vector<std::int32_t> ids = tokenizer.encode(text, framed).ids;
  check(!ids.empty(), "embed: the text ", printable(text), " has no tokens, expected at least one");
  if (longest == 0 || std::ssize(ids) <= longest) return ids;
  cut(std::ssize(ids));
  cut_framed(ids, tokenizer.encode(text, bare).ids, longest);
  return ids;
}

}  // namespace

void cut_framed(std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& inside,
                Index longest) {
  // The frame is what is left of a text without tokens: its first part stands before, the rest
  // behind.
  const auto start = std::search(ids.begin(), ids.end(), inside.begin(), inside.end());
  const Index before = start - ids.begin();
  const Index after = std::ssize(ids) - before - std::ssize(inside);
  check(before + after < longest, "a text is cut to ", longest, " tokens, which the frame of ",
        before + after, " fills");
  ids.erase(start + (longest - before - after), start + std::ssize(inside));
}

Index embed_limit(const Pretrained& loaded) {
  const ModelConfig& config = loaded.model.config();
  const Index asked = loaded.pooling.max_tokens;
  if (config.positions != ModelConfig::Positions::learned) return asked;
  return asked == 0 ? config.max_tokens : std::min(asked, config.max_tokens);
}

Tensor embed_texts(const Pretrained& loaded, std::span<const std::string> texts,
                   const Context& context, const std::function<void()>& pause,
                   const std::function<void(Index text, Index tokens)>& cut) {
  check(loaded.tokenizer.has_value(), "embed: the model has no tokenizer");
  check(loaded.model.config().kind == ModelConfig::Kind::encoder,
        "embed: the model is no encoder, expected one like BERT");
  std::vector<std::vector<std::int32_t>> ids;
  for (const std::string& text : texts)
    ids.push_back(ids_of(loaded, text, [&](Index tokens) {
      if (cut) cut(std::ssize(ids), tokens);
    }));
  // Texts of one length next to one another: they are items of a batch without a mask.
  std::vector<std::size_t> order(texts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return ids[a].size() < ids[b].size(); });
  const Index width = loaded.model.config().width;
  Tensor all({std::ssize(texts), width});
  for (std::size_t first = 0; first < order.size();) {
    if (pause) pause();
    Tokens tokens;
    std::size_t end = first;
    while (
        end < order.size() &&
        (end == first || std::ssize(tokens.ids) + std::ssize(ids[order[end]]) <= tokens_at_once)) {
      const auto& text = ids[order[end++]];
      tokens.ids.insert(tokens.ids.end(), text.begin(), text.end());
      tokens.lengths.push_back(std::ssize(text));
    }
    Tape tape(Tape::Mode::forward, context);
    const Tensor rows = Tape::take(loaded.model.forward(tape, tokens));
    const float* from = rows.data();
    for (; first < end; ++first) {
      const Index count = std::ssize(ids[order[first]]);
      pool(from, count, width, loaded.pooling.kind,
           all.data() + static_cast<Index>(order[first]) * width);
      from += count * width;
    }
  }
  return finished(std::move(all), loaded.pooling, context);
}

Index made_for(const Pretrained& loaded) {
  const ModelConfig& config = loaded.model.config();
  // A run of ours learns at whatever length it is given, which max_tokens does not say.
  const bool endless = config.positions == ModelConfig::Positions::rope && loaded.family != "rapt";
  return endless ? config.max_tokens : 0;
}

std::vector<std::int32_t> prompt_ids(const Pretrained& loaded, const std::string& text) {
  check(loaded.tokenizer.has_value(), "prompt: the model has no tokenizer, expected ids");
  const Tokenizer& tokenizer = *loaded.tokenizer;
  // A run of ours has learnt texts as they are, and sources that end.
  const bool own = loaded.family == "rapt";
  std::vector<std::int32_t> ids =
      own ? tokenizer.encode(text) : tokenizer.encode(text, EncodeOptions()).ids;
  const bool source = own && loaded.model.config().kind == ModelConfig::Kind::encoder_decoder;
  const std::optional<std::int32_t> end = tokenizer.end();
  if (source && end) ids.push_back(*end);
  if (!ids.empty()) return ids;
  if (loaded.special.begin) return {*loaded.special.begin};
  if (end) return {*end};
  return loaded.special.ends;
}

}  // namespace rapt
