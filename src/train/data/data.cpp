#include "train/data/data.h"

#include <bit>
#include <limits>

#include "base/check.h"
#include "base/random.h"
#include "train/data/sources.h"

namespace rapt {
namespace {

constexpr Index most_evaluations = 1'000'000;

}  // namespace

void check_data_options(const DataOptions& options) {
  check(!options.path.empty(), "data: no path; expected a file, a folder or task:NAME");
  check(options.items >= 1, "data: ", options.items, " items, expected at least 1");
  check(options.tokens >= 1, "data: ", options.tokens, " tokens, expected at least 1");
  check(options.tokens <= (Index{1} << 31) / options.items, "data: ", options.items, " items of ",
        options.tokens, " tokens, expected at most 2^31 tokens in a batch");
  check(options.evaluations >= 0 && options.evaluations <= most_evaluations,
        "data: ", options.evaluations, " evaluations, expected 0 to ", most_evaluations);
  check(options.held_out > 0 && options.held_out < 1, "data: held_out is ", options.held_out,
        ", expected more than 0 and less than 1; evaluations = 0 holds nothing out");
  check(options.masked > 0 && options.masked <= 1, "data: masked is ", options.masked,
        ", expected more than 0 and at most 1");
}

bool is_task(const DataOptions& options) { return options.path.starts_with("task:"); }

std::unique_ptr<const Data> open_data(const DataOptions& options,
                                      const std::optional<Tokenizer>& tokenizer,
                                      const Pause& pause) {
  check_data_options(options);
  if (is_task(options)) return task_data(options);
  check(tokenizer.has_value(), "data: ", options.path, " needs a tokenizer, none was given");
  if (options.learning == Learning::pairs) return pair_data(options, *tokenizer, pause);
  return text_data(options, *tokenizer, pause);
}

void check_step(Index step, Index items) {
  // Twice and more the room that any source multiplies by.
  const Index most = std::numeric_limits<Index>::max() / items / 256;
  check(step >= 0 && step <= most, "data: step is ", step, ", expected 0 to ", most);
}

void check_evaluation(Index index, Index evaluations) {
  check(index >= 0 && index < evaluations, "data: evaluation is ", index, ", expected 0 to ",
        evaluations - 1);
}

std::uint64_t fingerprint_of(const DataOptions& options) {
  return random_bits(options.seed,
                     {static_cast<Index>(options.learning), options.items, options.tokens,
                      options.separate_documents ? 1 : 0, std::bit_cast<Index>(options.masked)});
}

std::string grouped(Index number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, 1, ',');
  return text;
}

}  // namespace rapt
