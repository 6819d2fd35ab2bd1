#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/check.h"
#include "base/indexed_vector.h"
#include "families/family_config.h"
#include "families/sentence/sentence_config.h"

namespace rapt {
using namespace detail;
namespace {

/// Tokens per pass: enough for efficient products, few enough to stay in cache.
constexpr Index tokens_at_once = 2048;

/// The mean of rows [tokens, width], or the first.
void pool(const float* rows, Index tokens, Index width, Pooling::Kind kind, float* to) {
  IndexedVector<double> sums(width);
  const Index counted = kind == Pooling::Kind::cls ? 1 : tokens;
  for (Index t = 0; t < counted; ++t)
    for (Index c = 0; c < width; ++c) sums[c] += static_cast<double>(rows[t * width + c]);
  for (Index c = 0; c < width; ++c)
    to[c] = static_cast<float>(sums[c] / static_cast<double>(counted));
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

/// Dense layers and norm of pooled rows [texts, width].
Tensor finished(Tensor rows, const Pooling& pooling, const Context& context) {
  for (const Dense& layer : pooling.dense) rows = apply_dense(layer, rows, context);
  if (pooling.normalize) normalize_rows(rows);
  return rows;
}

/// Ids of a text, truncated to what the model reads; `truncated` gets the length before. Special
/// tokens around the text stay.
std::vector<std::int32_t> ids_of(const Pretrained& loaded, const std::string& text,
                                 const std::function<void(Index)>& truncated) {
  const std::optional<Index> longest = max_embed_tokens(loaded);
  // Text may spell out special tokens, as in other libraries for such models.
  const EncodeOptions whole{.add_special_tokens = true, .parse_special = true};
  const EncodeOptions bare{.add_special_tokens = false, .parse_special = true};
  const Tokenizer& tokenizer = *loaded.tokenizer;
  std::vector<std::int32_t> ids = tokenizer.encode(text, whole).ids;
  check(!ids.empty(), "embed: the text ", printable(text), " has no tokens, expected at least one");
  if (std::ssize(ids) <= longest.value_or(std::ssize(ids))) return ids;
  truncated(std::ssize(ids));
  truncate_ids(ids, tokenizer.encode(text, bare).ids, *longest);
  return ids;
}

}  // namespace

void detail::truncate_ids(std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& text_ids,
                          Index longest) {
  const auto start = std::search(ids.begin(), ids.end(), text_ids.begin(), text_ids.end());
  const Index before = start - ids.begin();
  const Index after = std::ssize(ids) - before - std::ssize(text_ids);
  check(before + after < longest, "a text is truncated to ", longest, " tokens, which its ",
        before + after, " special tokens fill");
  ids.erase(start + (longest - before - after), start + std::ssize(text_ids));
}

std::optional<Index> max_embed_tokens(const Pretrained& loaded) {
  const ModelConfig& config = loaded.model.config();
  const std::optional<Index> limit = loaded.pooling.max_seq_length;
  if (config.positions != ModelConfig::Positions::learned) return limit;
  return std::min(limit.value_or(config.max_positions), config.max_positions);
}

Tensor embed_texts(const Pretrained& loaded, std::span<const std::string> texts,
                   const EmbedEvents& events, const Context& context) {
  check(loaded.tokenizer.has_value(), "embed: the model has no tokenizer");
  check(loaded.model.config().kind == ModelConfig::Kind::encoder,
        "embed: the model is no encoder, expected one like BERT");
  std::vector<std::vector<std::int32_t>> ids;
  for (const std::string& text : texts)
    ids.push_back(ids_of(loaded, text, [&](Index tokens) {
      if (events.truncated) events.truncated(std::ssize(ids), tokens);
    }));
  // Texts of equal length next to each other: a batch without a mask.
  std::vector<std::size_t> order(texts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return ids[a].size() < ids[b].size(); });
  const Index width = loaded.model.config().hidden_size;
  Tensor all({std::ssize(texts), width});
  for (std::size_t first = 0; first < order.size();) {
    if (events.cancel_check) events.cancel_check();
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
    const Tensor rows = Tape::release(loaded.model.forward(tape, tokens));
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

std::optional<Index> trained_context(const Pretrained& loaded) {
  const ModelConfig& config = loaded.model.config();
  // A run of train() uses any length, which the config does not tell.
  if (config.positions != ModelConfig::Positions::rope || loaded.family == "rapt") return {};
  return config.max_positions;
}

std::vector<std::int32_t> prompt_ids(const Pretrained& loaded, const std::string& text) {
  check(loaded.tokenizer.has_value(), "prompt: the model has no tokenizer, expected ids");
  const Tokenizer& tokenizer = *loaded.tokenizer;
  // Runs of train() see texts without special tokens, and sources that end with eos.
  const bool own = loaded.family == "rapt";
  std::vector<std::int32_t> ids = tokenizer.encode(text, {.add_special_tokens = !own}).ids;
  const bool source = own && loaded.model.config().kind == ModelConfig::Kind::encoder_decoder;
  const std::optional<std::int32_t> eos = tokenizer.eos();
  if (source && eos) ids.push_back(*eos);
  if (!ids.empty()) return ids;
  if (loaded.special_tokens.bos) return {*loaded.special_tokens.bos};
  if (eos) return {*eos};
  return loaded.special_tokens.eos;
}

}  // namespace rapt
