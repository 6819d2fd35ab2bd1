#pragma once

#include "train/data/data.h"

namespace rapt {

/// What open_data chooses from; options are checked as far as they are common to all.
std::unique_ptr<const Data> text_data(const DataOptions& options, const Tokenizer& tokenizer,
                                      const Pause& pause);
std::unique_ptr<const Data> pair_data(const DataOptions& options, const Tokenizer& tokenizer,
                                      const Pause& pause);
std::unique_ptr<const Data> task_data(const DataOptions& options);

/// Throws unless a source has this step, or this evaluation.
void check_step(Index step, Index items);
void check_evaluation(Index index, Index evaluations);

/// One number for the options that every source depends on.
std::uint64_t fingerprint_of(const DataOptions& options);

/// 1234567 as 1,234,567.
std::string grouped(Index number);

}  // namespace rapt
