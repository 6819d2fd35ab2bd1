#pragma once

#include <functional>
#include <string_view>

namespace rapt::detail {

/// What happens to matches when text is split.
enum class SplitBehavior {
  removed,
  isolated,              // pieces of their own
  merged_with_previous,  // at the end of what is before them
  merged_with_next,      // at the beginning of what follows
  contiguous,            // neighbouring ones together
};

/// Takes matches and the text between them, in order, and passes on pieces.
template <class Visit>
class SplitJoiner {
 public:
  SplitJoiner(SplitBehavior behavior, const Visit& visit) : behavior_(behavior), visit_(visit) {}

  void add(std::string_view part, bool match) {
    switch (behavior_) {
      case SplitBehavior::removed:
        if (!match) visit_(part);
        return;
      case SplitBehavior::isolated:
        visit_(part);
        return;
      case SplitBehavior::merged_with_previous:
        join(part, match && !last_match_ && waiting_);
        break;
      case SplitBehavior::merged_with_next:
        join(part, !match && last_match_ && waiting_);
        break;
      case SplitBehavior::contiguous:
        join(part, match == last_match_ && waiting_);
        break;
    }
    last_match_ = match;
  }
  void finish() {
    if (waiting_) visit_(pending_);
    waiting_ = false;
  }

 private:
  void join(std::string_view part, bool together) {
    if (together) {
      pending_ = {pending_.data(), pending_.size() + part.size()};
      return;
    }
    finish();
    pending_ = part;
    waiting_ = true;
  }

  SplitBehavior behavior_;
  const Visit& visit_;
  std::string_view pending_;
  bool waiting_ = false, last_match_ = false;
};

}  // namespace rapt::detail
