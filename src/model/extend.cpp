#include <algorithm>

#include "base/check.h"
#include "base/sizes.h"
#include "model/transformer_impl.h"

namespace rapt {
using namespace detail;
namespace {

/// Each would read the other's tokens as its own past.
void check_distinct(const char* where, std::span<const Index> sequences) {
  for (std::size_t i = 0; i < sequences.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      check(sequences[i] != sequences[j], where, ": sequence ", sequences[i],
            " is given twice, at ", j, " and ", i,
            "; expected each once: give its tokens as one sequence, or fork it");
}

}  // namespace

void Transformer::encode(const Tokens& sources, ModelCache& cache, std::span<const Index> sequences,
                         const Context& context) const {
  check(impl_->weights.encoder.has_value(), "encode: the model has no encoder");
  check(sources.lengths.size() == sequences.size(), "encode: ", sources.lengths.size(),
        " sources for ", sequences.size(), " sequences, expected as many");
  check_distinct("encode", sequences);
  for (const Index sequence : sequences)
    check(cache.tokens(sequence) == 0 && impl_of(cache).sources.front().tokens(sequence) == 0,
          "encode: sequence ", sequence, " has begun already, expected a new one");
  Tape tape(Tape::Mode::forward, context);
  const auto reading = std::make_shared<Pass>(impl_->config, impl_->weights, PassOptions{});
  const auto layout = std::make_shared<const SequenceLayout>(sources.lengths);
  const Variable read =
      reading->stack(tape, reading->embed(tape, sources, *layout),
                     {&*impl_->weights.encoder, layout, impl_->ropes_for(sources.lengths)});
  const auto keeping = std::make_shared<Pass>(impl_->config, impl_->weights, PassOptions{},
                                              CacheUse{&cache, sequences});
  keeping->keep_sources(tape, read, *layout);
}

Tensor Transformer::Impl::extended(const Tokens& tokens, const CacheUse& use,
                                   std::vector<Rope> ropes, const Context& context) {
  Tape tape(Tape::Mode::forward, context);
  const auto pass = std::make_shared<Pass>(config, weights, PassOptions{}, use);
  const auto layout = std::make_shared<const SequenceLayout>(tokens.lengths);
  return Tape::release(pass->stack(tape, pass->embed(tape, tokens, *layout),
                                   {&weights.stack, layout, std::move(ropes)}));
}

/// Reads the whole sequence again if its keys were rotated for a length with other angles.
Tensor Transformer::Impl::extended_text(std::span<const std::int32_t> ids, ModelCache& cache,
                                        Index sequence, const Context& context) {
  ModelCache::Impl::SequenceTokens& text = impl_of(cache).tokens.at(sequence);
  std::vector<std::int32_t> all = text.ids;
  all.insert(all.end(), ids.begin(), ids.end());
  const auto length = static_cast<Index>(all.size()), known = cache.tokens(sequence);
  const Rope now = rope->for_length(length), before = rope->for_length(text.rotated_for);
  const bool fits = known == static_cast<Index>(text.ids.size()) &&
                    now.attention_factor() == before.attention_factor() &&
                    std::ranges::equal(now.frequencies(), before.frequencies());
  if (!fits)
    for (KvCache& layer : impl_of(cache).layers) layer.truncate(sequence, 0);
  const Index first = fits ? known : 0;
  const Tensor read = extended(Tokens::one({all.begin() + first, all.end()}),
                               {&cache, std::span(&sequence, 1)}, {now}, context);
  text = {std::move(all), length};
  const auto count = static_cast<Index>(ids.size()), width = read.shape()[1];
  Tensor last = Tensor::uninitialized({count, width});
  std::copy_n(read.data() + (length - first - count) * width, last.elements(), last.data());
  return last;
}

Tensor Transformer::extend(const Tokens& tokens, ModelCache& cache,
                           std::span<const Index> sequences, const Context& context) const {
  check(tokens.lengths.size() == sequences.size(), "extend: ", tokens.lengths.size(),
        " sequences of tokens for ", sequences.size(), " of the cache, expected as many");
  check_distinct("extend", sequences);
  for (const Index sequence : sequences)
    check(impl_of(cache).sources.empty() || impl_of(cache).sources.front().tokens(sequence) > 0,
          "extend: sequence ", sequence, " has no sources yet, expected encode first");
  if (!impl_of(cache).keeps_tokens)
    return impl_->extended(tokens, {&cache, sequences}, impl_->ropes_for({}), context);
  // Each sequence has angles of its own.
  const SequenceLayout layout(tokens.lengths);
  check(static_cast<Index>(tokens.ids.size()) == layout.rows(), "extend: ", tokens.ids.size(),
        " ids in sequences of ", layout.rows(), " tokens");
  Tensor all;
  Index row = 0;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const auto ids = std::span(tokens.ids).subspan(to_size(row), to_size(tokens.lengths[i]));
    const Tensor one = impl_->extended_text(ids, cache, sequences[i], context);
    const Index width = one.shape()[1];
    if (all.empty()) all = Tensor::uninitialized({layout.rows(), width});
    std::copy_n(one.data(), one.elements(), all.data() + row * width);
    row += tokens.lengths[i];
  }
  return all;
}

}  // namespace rapt
