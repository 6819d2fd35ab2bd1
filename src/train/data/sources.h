#pragma once

#include "train/data/data.h"

namespace rapt::detail {

/// What open_data chooses from; options are checked as far as they are common to all.
std::unique_ptr<const Data> text_data(const DataOptions& options, const Tokenizer& tokenizer,
                                      const CancelCheck& cancel_check);
std::unique_ptr<const Data> pair_data(const DataOptions& options, const Tokenizer& tokenizer,
                                      const CancelCheck& cancel_check);
std::unique_ptr<const Data> task_data(const DataOptions& options);

/// Throws unless a source has this step, or this batch for evaluation.
void check_step(Index step, Index items);
void check_eval_batch(Index index, Index count);

/// One number for the options that every source depends on.
std::uint64_t fingerprint_of(const DataOptions& options);

/// 1234567 as 1,234,567.
std::string grouped(Index number);

}  // namespace rapt::detail
