#pragma once

#include <utility>

#include "base/indexed_vector.h"
#include "rapt/distributed/communicator.h"

namespace rapt::distributed {

/// Some ranks of another communicator. Its messages are the other one's, with tags of a space of
/// their own.
class SubCommunicator final : public Communicator {
 public:
  /// `ranks` are those of `parent`; `rank` counts in this list.
  SubCommunicator(Communicator& parent, detail::IndexedVector<Index> ranks, Index rank,
                  Index tag_space)
      : parent_(parent), ranks_(std::move(ranks)), rank_(rank), tag_space_(tag_space) {}

  Index rank() const override { return rank_; }
  Index size() const override { return std::ssize(ranks_); }
  std::string_view backend() const override { return parent_.backend(); }
  std::unique_ptr<Message> send(Index to, Index tag, std::span<const std::byte> bytes) override;
  std::unique_ptr<Message> receive(Index from, Index tag, std::span<std::byte> bytes) override;
  void abort(std::string_view why) noexcept override { parent_.abort(why); }
  std::chrono::milliseconds timeout() const override { return parent_.timeout(); }
  void waited(std::chrono::nanoseconds time) override { parent_.waited(time); }

 private:
  Index parent_tag(Index tag) const;

  Communicator& parent_;
  detail::IndexedVector<Index> ranks_;
  Index rank_;
  Index tag_space_;
};

}  // namespace rapt::distributed
