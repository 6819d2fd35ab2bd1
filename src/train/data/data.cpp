#include "train/data/data.h"

#include <bit>
#include <limits>

#include "base/check.h"
#include "base/random.h"
#include "train/data/sources.h"

namespace rapt::detail {
namespace {

constexpr Index most_eval_batches = 1'000'000;

}  // namespace

void check_data_options(const DataOptions& options) {
  check(!options.path.empty(), "data: no path; expected a file, a folder or task:NAME");
  check(options.batch_size >= 1, "data: batch_size is ", options.batch_size,
        ", expected at least 1");
  check(options.tokens >= 1, "data: tokens is ", options.tokens, ", expected at least 1");
  check(options.tokens <= (Index{1} << 31) / options.batch_size, "data: ", options.batch_size,
        " items of ", options.tokens, " tokens, expected at most 2^31 tokens in a batch");
  if (options.eval_batches)
    check(*options.eval_batches >= 1 && *options.eval_batches <= most_eval_batches,
          "data: eval_batches is ", *options.eval_batches, ", expected 1 to ", most_eval_batches,
          "; none keeps no data for evaluation");
  check(options.eval_fraction > 0 && options.eval_fraction < 1, "data: eval_fraction is ",
        options.eval_fraction,
        ", expected more than 0 and less than 1; eval_batches = \"none\" keeps no data for "
        "evaluation");
  check(!options.eval_path || !options.eval_path->empty(),
        "data: eval_path is empty, expected a file or a folder; leave it out for none");
  check(options.mask_probability > 0 && options.mask_probability <= 1, "data: mask_probability is ",
        options.mask_probability, ", expected more than 0 and at most 1");
}

bool is_task(const DataOptions& options) { return options.path.starts_with("task:"); }

std::unique_ptr<const Data> open_data(const DataOptions& options,
                                      const std::optional<Tokenizer>& tokenizer,
                                      const CancelCheck& cancel_check) {
  check_data_options(options);
  if (is_task(options)) return task_data(options);
  check(tokenizer.has_value(), "data: ", options.path, " needs a tokenizer, none was given");
  if (options.objective == Objective::pairs) return pair_data(options, *tokenizer, cancel_check);
  return text_data(options, *tokenizer, cancel_check);
}

void check_step(Index step, Index items) {
  // More than twice the factor that any source multiplies by.
  const Index most = std::numeric_limits<Index>::max() / items / 256;
  check(step >= 0 && step <= most, "data: step is ", step, ", expected 0 to ", most);
}

void check_eval_batch(Index index, Index count) {
  check(index >= 0 && index < count, "data: evaluation batch is ", index, ", expected 0 to ",
        count - 1);
}

std::uint64_t fingerprint_of(const DataOptions& options) {
  return random_bits(options.seed, {static_cast<Index>(options.objective), options.batch_size,
                                    options.tokens, options.separate_documents ? 1 : 0,
                                    std::bit_cast<Index>(options.mask_probability)});
}

std::string grouped(Index number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, 1, ',');
  return text;
}

}  // namespace rapt::detail
