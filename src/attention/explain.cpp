#include <list>
#include <map>
#include <sstream>

#include "attention/cache/cache_batch.h"
#include "attention/cache/cached_keys.h"
#include "attention/call.h"
#include "attention/pattern/pattern_node.h"
#include "attention/validate.h"

namespace rapt {
using namespace detail;
namespace {

std::string score_text(const Call& call) {
  std::string text = "softmax of scaled products";
  if (call.relative) text += ", relative keys";
  if (call.relative_values) text += ", relative values";
  if (call.score_rule.has_softcap()) text += ", soft-cap";
  if (call.score_rule.has_diagonal()) text += ", bias by relative position";
  if (call.score_rule.has_dense()) text += ", dense bias";
  if (call.score_rule.has_sinks()) text += ", sinks";
  if (call.score_rule.has_dropout()) text += ", dropout";
  return text;
}

/// The route taken, and why not those that come before it.
std::string route_text(Request& request, const Route& route) {
  std::string text = std::string("route     ") + route.name + ": " + route.summary + "\n";
  for (const Route& other : routes()) {
    if (&other == &route) break;
    text += std::string("not       ") + other.name + ": " + other.why_not(request) + "\n";
  }
  return text;
}

/// Patterns with an lsh leaf have no plan before the numbers are known.
std::string plan_text(const Request& request) {
  if (node_of(request.how.pattern)->has_lsh())
    return "pattern   " + to_string(request.how.pattern) + "\n" + "isa       " +
           kernels_of(request.context).name + "\n";
  const Call call(request);
  const Plan& plan = *call.plan;
  const Index visited = plan.whole_tiles() + plan.masked_tiles();
  std::ostringstream text;
  text << "isa       " << call.kernels.name << ", " << call.kernels.lanes << " lanes, micro-kernel "
       << strip << " x " << call.kernels.tiles.panel << "\n"
       << "tiles     " << tile << " queries x " << tile << " keys; " << visited << " of "
       << plan.query_tiles() * plan.key_tiles() << " visited, " << plan.whole_tiles() << " whole, "
       << plan.masked_tiles() << " masked\n"
       << "pairs     " << plan.pairs() << " of " << call.queries * call.keys << " for each of "
       << call.batch * call.heads << " heads\n"
       << "score     " << score_text(call) << "\n";
  return text.str();
}

std::string cache_text(const Request& request) {
  if (!request.cached) return {};
  return "cache     " + to_string(request.cached->options.type) +
         (request.cached->options.lsh ? ", hashed, keys and values in rows\n"
                                      : ", pages of " + std::to_string(tile) + " tokens\n") +
         "queries   " + to_string(request.q.type()) + "\n";
}

/// Refuses what attend refuses: pages that a window released.
void check_pages(const Request& request) {
  if (node_of(request.how.pattern)->has_lsh()) return;
  const Call call(request);
  check_visits(request.where, *request.cached->cache, *request.cached->tokens, *call.plan);
}

std::string explain(Request request) {
  const Route& route = route_of(request);
  return route_text(request, route) + cache_text(request) + route.describe(request) +
         plan_text(request) + "threads   " + std::to_string(request.context.threads()) + "\n";
}

}  // namespace

std::string explain(const Shape& q, const Shape& k, const Shape& v, const Attention& how, Type type,
                    const Context& context) {
  const Request request{"explain", stand_in(q, type), stand_in(k, type), stand_in(v, type), how,
                        context};
  validate(request);
  return explain(request);
}

std::string explain(const Shape& q, const CacheOptions& cache, Index tokens, const Attention& how,
                    Type type, const Context& context) {
  std::list<Attention> narrowed;
  const Request request = cache_request(stand_in(q, type), {cache}, tokens,
                                        attention_among(how, tokens, narrowed), context);
  validate(request);
  return explain(request);
}

std::string explain(const Shape& q, const KvCache& cache,
                    std::span<const KvCache::Sequence> sequences, const Attention& how, Type type) {
  const AnyView queries = stand_in(q, type);
  validate_batch(queries, sequences);
  Tensor nothing({q[0], q[1], 0, cache.options().filled_value_dim()});
  CacheBatch batch(queries, cache, sequences, how, {nothing, nullptr, nullptr, nullptr});
  std::map<std::pair<Index, const Route*>, std::vector<const Job*>> groups;
  for (Job& job : batch.jobs()) {
    check_pages(job.request);
    groups[{job.request.keys(), &route_of(job.request)}].push_back(&job);
  }
  std::string text;
  for (const auto& [key, jobs] : groups) {
    const Request& first = jobs.front()->request;
    std::vector<Index> numbers;
    for (const Job* job : jobs) numbers.push_back(*job->request.cached->number);
    if (groups.size() > 1)
      text += (text.empty() ? "" : "\n") + std::string("sequences ") + list_text(numbers) + " of " +
              std::to_string(first.keys()) + " tokens\n";
    const AnyView all = stand_in({std::ssize(jobs), q[1], q[2], q[3]}, type);
    text += explain(cache_request(all, *first.cached, first.keys(), first.how, cache.context()));
  }
  return text.empty() ? "no sequences, nothing to do\n" : text;
}

}  // namespace rapt
