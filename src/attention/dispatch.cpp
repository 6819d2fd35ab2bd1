#include "attention/dispatch.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "attention/backward/backward.h"
#include "attention/decode/decode.h"
#include "attention/decode/short_context.h"
#include "attention/forward/forward.h"
#include "attention/lsh/lsh_attend.h"
#include "attention/lsh/lsh_decode.h"
#include "attention/pattern/pattern_node.h"

namespace rapt::detail {
namespace {

// As the reasons below say.
static_assert(FullPage::max_rows == 16 && lsh_query_block == 16 && tile == 64);

constexpr const char* no_lsh = "the pattern has no lsh leaf";

bool has_lsh(const Request& r) { return node_of(r.how.pattern)->has_lsh(); }

bool has_padding(const CachedSequence& sequence) {
  return sequence.tokens != nullptr &&
         sequence.tokens->places->tokens_in(0, sequence.cache->hash->padding_bucket()) > 0;
}

/// Chunks meet chunks where all tokens are queries. Over a cache the keys are then the queries, so
/// they must be stored as they are.
const char* why_not_lsh(Request& r) {
  if (!has_lsh(r)) return no_lsh;
  if (!r.cached) return nullptr;
  if (r.how.strict) return "strict is set";
  if (r.queries() != r.keys()) return "the queries are not all tokens of the cache";
  if (r.queries() <= lsh_query_block) return "no more than 16 queries";
  if (r.cached->options.type != CacheType::f32) return "the cache does not store f32";
  return has_padding(*r.cached) ? "the sequence is padded" : nullptr;
}

const char* why_not_lsh_decode(Request& r) { return has_lsh(r) ? nullptr : no_lsh; }

bool has_bias(const Bias& bias) {
  return bias.alibi || bias.kerple || bias.table || bias.keys || bias.dense;
}

const char* why_not_short_context(Request& r) {
  if (r.queries() != 1 || r.q.heads() == 0) return "not one query per head";
  const Attention& how = r.how;
  if (how.strict) return "strict is set";
  if (how.stats) return "statistics are asked for";
  if (how.softcap || has_bias(how.bias) || !how.relative_values.empty() || !how.sinks.empty())
    return "the score is more than a scaled product";
  if (how.dropout.rate != 0) return "dropout";
  r.short_context = short_context(r);
  return r.short_context ? nullptr : no_short_context(r);
}

const char* why_not_decode(Request& r) {
  const Attention& how = r.how;
  if (how.strict) return "strict is set";
  if (r.rows_per_kv_head() > FullPage::max_rows) return "more than 16 query rows per key head";
  if (r.q.batch() == 0 || r.rows_per_kv_head() == 0) return "no queries";
  if (how.stats) return "statistics are asked for";
  if (how.bias.keys || !how.relative_values.empty()) return "relative keys or values";
  if (how.bias.dense) return "a dense bias";
  return how.dropout.rate > 0 ? "dropout" : nullptr;
}

/// Statistics need exact probabilities; relative keys and values are tables of f32.
const char* why_not_bf16_tiles(Request& r) {
  const auto is_bf16 = [](const AnyView& view) { return view.type() == Type::bf16; };
  if (!is_bf16(r.q) || !is_bf16(r.k) || !is_bf16(r.v)) return "q, k and v are not all bf16";
  if (r.how.stats) return "statistics need exact probabilities";
  if (r.how.bias.keys || !r.how.relative_values.empty())
    return "relative keys and values are tables of f32";
  return kernels_of(r.context).has_bf16() ? nullptr : "no bf16 kernels for this instruction set";
}

const char* always(Request&) { return nullptr; }

constexpr Route all_routes[] = {
    {"lsh", "tokens sorted by hash, chunks of queries against chunks of keys", why_not_lsh, run_lsh,
     describe_lsh},
    {"lsh-decode", "each query looks up its neighbours in the order that a cache keeps",
     why_not_lsh_decode, run_lsh_decode, describe_lsh_decode},
    {"short-context", "one query over 1 to 64 keys in rows: no plan, no scratch memory",
     why_not_short_context, run_short_context, describe_short_context},
    {"decode",
     "a few query rows of a key head together, keys read where they are and split over "
     "threads",
     why_not_decode, run_decode, describe_decode},
    {"bf16-tiles", "64 x 64 tiles, products of bf16 summed in f32", why_not_bf16_tiles,
     run_bf16_tiles, describe_bf16_tiles, run_part<Bf16>},
    {"f32-tiles", "64 x 64 tiles, products of f32; other types are widened as they are packed",
     always, run_f32_tiles, describe_f32_tiles, run_part<float>},
};

/// Backward rounds logits as forward did, so bf16 needs forward's bf16 tiles.
const char* why_not_bf16_backward(Request& r, const AnyView& dout) {
  if (dout.type() != Type::bf16) return "dout is not bf16";
  if (r.how.bias.dense) return "the gradient of a dense bias is a pass in f32";
  return route_of(r).run == run_bf16_tiles ? nullptr : "forward does not multiply bf16 tiles";
}

const char* always_backward(Request&, const AnyView&) { return nullptr; }

constexpr BackwardRoute all_backward_routes[] = {
    {"bf16-tiles", why_not_bf16_backward, run_backward<Bf16>, make_backward_pass<Bf16>,
     Denominators::in_running_max},
    {"f32-tiles", always_backward, run_backward<float>, make_backward_pass<float>,
     Denominators::in_douts},
};

auto takes(const Route& route) {
  return [&route](const Job& job) { return job.route == &route; };
}

void run(const Route& route, std::span<const Job> jobs) {
  route.run(jobs);
  last_route = route.name;
}

}  // namespace

std::span<const Route> routes() { return all_routes; }

const Route& route_of(Request& request) {
  const Route* route = all_routes;
  while (route->why_not(request) != nullptr) ++route;
  return *route;
}

const BackwardRoute& backward_route_of(Request request, const AnyView& dout) {
  const BackwardRoute* route = all_backward_routes;
  while (route->why_not(request, dout) != nullptr) ++route;
  return *route;
}

void dispatch(std::span<Job> jobs) {
  if (jobs.empty()) return;
  for (Job& job : jobs) job.route = &route_of(job.request);
  const Route& first = *jobs.front().route;
  if (std::all_of(jobs.begin(), jobs.end(), takes(first))) return run(first, jobs);
  // From the last: short contexts have nothing left to refuse.
  for (auto route = std::rbegin(all_routes); route != std::rend(all_routes); ++route) {
    std::vector<Job> some;
    std::copy_if(jobs.begin(), jobs.end(), std::back_inserter(some), takes(*route));
    if (!some.empty()) run(*route, some);
  }
}

}  // namespace rapt::detail
