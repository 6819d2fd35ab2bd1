#include "attention/cache/cache_batch.h"
#include "attention/validate.h"
#include "base/check.h"
#include "base/flush_denormals.h"
#include "base/views.h"

namespace rapt {
using namespace detail;

Attended attend(AnyView q, const KvCache& cache, std::span<const KvCache::Sequence> sequences,
                const Attention& how) {
  const FlushDenormals guard;
  validate_batch(q, sequences);
  Attended attended = make_results({q.batch(), q.heads(), q.tokens()}, how.stats);
  attended.out = Tensor::uninitialized(
      {q.batch(), q.heads(), q.tokens(), cache.options().filled_value_dim()}, q.type());
  dispatch_cache(q, cache, sequences, how, output_of(attended, attended.out));
  return attended;
}

void attend_into(AnyMutableView out, AnyView q, const KvCache& cache,
                 std::span<const KvCache::Sequence> sequences, const Attention& how) {
  const FlushDenormals guard;
  validate_batch(q, sequences);
  check(!how.stats, over_cache,
        ": statistics are asked for where only the output is kept; expected attend, which returns "
        "them");
  check_output(over_cache, "out", out,
               {q.batch(), q.heads(), q.tokens(), cache.options().filled_value_dim()});
  check_apart(over_cache, out, q, "q");
  if (how.bias.dense) check_apart(over_cache, out, how.bias.dense->values, "the dense bias");
  dispatch_cache(q, cache, sequences, how, {out, nullptr, nullptr, nullptr});
}

}  // namespace rapt
