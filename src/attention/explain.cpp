#include <map>
#include <sstream>

#include "attention/cached_keys.h"
#include "attention/call.h"
#include "attention/decode.h"
#include "attention/direct.h"
#include "attention/forward.h"
#include "attention/lsh_decode.h"
#include "attention/pattern_node.h"
#include "attention/standing.h"
#include "base/check.h"
#include "kernels/bf16_units.h"
#include "kernels/pair_kernels.h"
#include "rapt/attention.h"

namespace rapt {
namespace {

std::string score_text(const Call& call) {
  std::string text = "softmax of scaled products";
  if (call.relative) text += ", relative keys";
  if (call.relative_values) text += ", relative values";
  if (call.rule.has_softcap()) text += ", soft-cap";
  if (call.rule.has_diagonal()) text += ", bias by relative position";
  if (call.rule.has_dense()) text += ", dense bias";
  if (call.rule.has_sinks()) text += ", sinks";
  if (call.rule.has_dropout()) text += ", dropout";
  return text;
}

/// Why the tile unit is not in these kernels.
std::string why_no_tiles(const Kernels& kernels) {
  return amx().usable ? std::string("AMX is there, but not in ") + kernels.name : amx().why_not;
}

/// Why bf16 operands are not multiplied as they are.
std::string why_widened(const Call& call) {
  if (call.kernels.pairs == nullptr) return why_no_tiles(call.kernels);
  return call.how.stats ? "statistics need exact probabilities"
                        : "relative keys and values are tables of f32";
}

std::string operand_text(const Call& call) {
  const Type type = call.q.type();
  if (type == Type::f32) return "f32";
  if (decodes(call) || direct_keys(call))
    return rapt::text(type) + ", widened to f32 as they are read";
  if (call.pairs != nullptr) {
    return rapt::text(type) + std::string(", multiplied as they are by ") + call.pairs->engine +
           ", summed in f32; probabilities rounded to bf16" +
           (call.pairs == pair_kernels_of(PairEngine::tiles) ? ""
                                                             : "; " + why_no_tiles(call.kernels));
  }
  return rapt::text(type) + ", widened to f32 where they are packed; results rounded once" +
         (type == Type::bf16 ? "; " + why_widened(call) : "");
}

std::string direct_text(const DirectKeys& keys) {
  return "direct: " + std::to_string(keys.range.end - keys.range.begin) +
         " keys in rows, one query after the other, no plan";
}

std::string kernel_text(const Call& call) {
  if (const auto keys = direct_keys(call))
    return "f32 over keys and values as they lie, exact softmax\nway       " + direct_text(*keys);
  if (decodes(call))
    return "f32 over keys and values as they lie, exact online softmax\nway       " +
           way_of_queries(call);
  return call.pairs == nullptr
             ? "fused f32, exact online softmax, f64 row sums and accumulators"
             : "fused bf16, online softmax of rounded probabilities, f64 row sums and accumulators";
}

/// Patterns with an lsh leaf have no plan before the numbers are known.
std::string explain_hashed(const Lsh& lsh, const Shape& q, const Attention& how,
                           const Context& context) {
  const Index tokens = q[2];
  std::vector<Index> buckets = lsh.buckets;
  if (buckets.empty()) buckets = lsh_buckets(std::max<Index>(tokens, 1), lsh.chunk);
  std::ostringstream text;
  text << "kernel    fused f32, exact online softmax, f64 row sums and accumulators\n"
       << "pattern   " << how.pattern.text() << "\n";
  if (tokens <= lsh.chunk) {
    text << "order     as it is: no more tokens than one chunk of " << lsh.chunk << "\n";
  } else {
    text << "order     by " << lsh.rounds << " round" << (lsh.rounds == 1 ? "" : "s")
         << " of hashing into " << list_text(buckets) << " buckets, chunks of " << lsh.chunk
         << " that see " << lsh.before << " before and " << lsh.after << " after them\n";
  }
  text << "pairs     " << lsh_pairs(lsh, tokens) << " of " << tokens * tokens << " for each of "
       << q[0] * q[1] << " heads, one head after the other\n"
       << "isa       " << kernels_of(context).name << "\n"
       << "threads   " << context.threads() << "\n";
  return text.str();
}

std::string explain_hashed_cache(const Lsh& lsh, const Shape& q, const CacheOptions& cache,
                                 Index tokens, const Attention& how, const Context& context) {
  const Index value_dim = cache.value_dim == 0 ? cache.dim : cache.value_dim;
  check(cache.lsh && cache.lsh->lsh == lsh, "explain: the pattern has ", how.pattern.text(),
        " but the cache was not made for this lsh leaf, expected it in CacheOptions::lsh");
  check(q[2] <= tokens && q[1] == cache.kv_heads, "explain: ", q[2], " queries of ", q[1],
        " heads over ", tokens, " tokens of ", cache.kv_heads,
        ", expected no more queries than tokens and as many heads");
  check_call("explain", stand_in(q), stand_in({q[0], cache.kv_heads, tokens, cache.dim}),
             stand_in({q[0], cache.kv_heads, tokens, value_dim}), how);
  check_lsh_score("explain", how);
  const bool prompt =
      !how.strict && cache.type == CacheType::f32 && q[2] == tokens && tokens > lsh_query_block;
  std::ostringstream text;
  text << "cache     " << rapt::text(cache.type) << ", hashed, keys and values in rows\n"
       << "pattern   " << how.pattern.text() << "\n"
       << "way       " << (prompt ? "chunk by chunk, as without cache; if there is padding, " : "")
       << "each query by itself: "
       << (tokens <= lsh.chunk
               ? "all " + std::to_string(tokens) + " tokens, no more than one chunk"
               : std::to_string(lsh.rounds * (1 + lsh.before + lsh.after)) + " chunks of " +
                     std::to_string(lsh.chunk) + " tokens, found through counts of the buckets")
       << "\n"
       << "tasks     " << q[0] * q[1] << " heads, up to 16 queries at a time\n"
       << "isa       " << kernels_of(context).name << "\n"
       << "threads   " << context.threads() << "\n";
  return text.str();
}

/// Keys of a page that is not full yet still lie in rows.
std::string way_over_cache(const Call& call, CacheType type) {
  const auto keys = direct_keys(call);
  if (keys && keys->range.begin / tile == call.keys / tile) return direct_text(*keys);
  const bool products = !call.rule.has_softcap() && !call.rule.has_diagonal();
  const bool bytes = decodes(call) && products && byte_kernels_for(type, call.kernels) != nullptr;
  return way_of_queries(call) + (bytes ? ", whole tiles as bytes" : "");
}

/// What is the same of a call however its keys come.
std::string explain_call(const Call& call) {
  const Plan& plan = *call.plan;
  const Index visited = plan.whole_tiles() + plan.masked_tiles();
  std::ostringstream text;
  text << "isa       " << call.kernels.name << ", " << call.kernels.lanes << " lanes, micro-kernel "
       << strip << " x " << call.kernels.panel << "\n"
       << "tiles     " << tile << " queries x " << tile << " keys; " << visited << " of "
       << plan.query_tiles() * plan.key_tiles() << " visited, " << plan.whole_tiles() << " whole, "
       << plan.masked_tiles() << " masked\n"
       << "pairs     " << plan.pairs() << " of " << call.queries * call.keys << " for each of "
       << call.batch * call.heads << " heads\n"
       << "score     " << score_text(call) << "\n";
  return text.str();
}

}  // namespace

std::string explain(const Shape& q, const Shape& k, const Shape& v, const Attention& how,
                    const Context& context, Type type) {
  if (const std::optional<Lsh> lsh = lsh_part(how.pattern); lsh && q.rank() == 4)
    return explain_hashed(*lsh, q, how, context);
  const Call call("explain", stand_in(q, type), stand_in(k, type), stand_in(v, type), how, context);
  std::ostringstream text;
  text << "kernel    " << kernel_text(call) << "\n"
       << "operands  " << operand_text(call) << "\n"
       << explain_call(call);
  if (!decodes(call) && !direct_keys(call))
    text << "tasks     "
         << call.batch * call.heads * divide_up(call.query_tiles(), forward_group(call))
         << " (batch item, head, " << forward_group(call)
         << " query tiles), head after head, longest first\n";
  text << "threads   " << context.threads() << "\n";
  return text.str();
}

std::string explain(const Shape& q, const CacheOptions& cache, Index tokens, const Attention& how,
                    const Context& context, Type type) {
  if (const std::optional<Lsh> lsh = lsh_part(how.pattern); lsh && q.rank() == 4)
    return explain_hashed_cache(*lsh, q, cache, tokens, how, context);
  check_unhashed(cache.lsh.has_value());
  if (q.rank() == 4) check_standing(how.pattern, {q[2], tokens}, {});
  const Index value_dim = cache.value_dim == 0 ? cache.dim : cache.value_dim;
  const Type stored = cache.type == CacheType::bf16 ? Type::bf16 : Type::f32;
  Attention now = how;
  now.pattern = among(how.pattern, tokens);  // as attend over a cache has it
  const Call call(over_cache, stand_in(q, type),
                  stand_in({q.rank() == 4 ? q[0] : 1, cache.kv_heads, tokens, cache.dim}, stored),
                  stand_in({q.rank() == 4 ? q[0] : 1, cache.kv_heads, tokens, value_dim}, stored),
                  now, context);
  std::ostringstream text;
  text << "cache     " << rapt::text(cache.type) << ", pages of " << tile << " tokens\n"
       << "way       " << way_over_cache(call, cache.type) << "\n"
       << "queries   " << rapt::text(type) << "\n"
       << explain_call(call) << "threads   " << context.threads() << "\n";
  return text.str();
}

std::string explain(const Shape& q, const KvCache& cache,
                    std::span<const KvCache::Sequence> sequences, const Attention& how,
                    const Context& context, Type type) {
  check_cache_call(stand_in(q, type), cache, sequences, how, context);
  // The way hangs on the length alone.
  std::map<Index, std::vector<Index>> by_tokens;
  for (const KvCache::Sequence sequence : sequences)
    by_tokens[cache.tokens(sequence)].push_back(sequence);
  std::string text;
  for (const auto& [tokens, alike] : by_tokens) {
    if (by_tokens.size() > 1)
      text += (text.empty() ? "" : "\n") + std::string("sequences ") + list_text(alike) + " of " +
              std::to_string(tokens) + " tokens\n";
    text +=
        explain({std::ssize(alike), q[1], q[2], q[3]}, cache.options(), tokens, how, context, type);
  }
  return text.empty() ? "no sequences, nothing to do\n" : text;
}

}  // namespace rapt
