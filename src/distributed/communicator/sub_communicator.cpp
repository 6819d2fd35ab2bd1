#include "distributed/communicator/sub_communicator.h"

#include <algorithm>
#include <numeric>

#include "base/access.h"
#include "distributed/communicator/message_text.h"
#include "distributed/communicator/tags.h"

namespace rapt::distributed {
namespace {

using detail::IndexedVector;

/// What a rank tells the others when they part.
struct Choice {
  Index color;
  Index key;
  Index groups;  // that this rank has been in
};

IndexedVector<Choice> choices_of_all(Communicator& communicator, const Choice& mine) {
  IndexedVector<Choice> all(communicator.size());
  all_gather(communicator, std::as_bytes(std::span(&mine, 1)),
             std::as_writable_bytes(std::span(all)));
  return all;
}

/// The ranks of one color, in the order of their keys.
IndexedVector<Index> ranks_of(Index color, const IndexedVector<Choice>& choices) {
  IndexedVector<Index> ranks(choices.size());
  std::iota(ranks.begin(), ranks.end(), Index{0});
  std::erase_if(ranks, [&](Index rank) { return choices[rank].color != color; });
  std::ranges::stable_sort(ranks, {}, [&](Index rank) { return choices[rank].key; });
  return ranks;
}

}  // namespace

/// Tags of collective operations, and of groups of this group, are the same in the parent.
Index SubCommunicator::parent_tag(Index tag) const {
  return tag < tags ? tag + tag_space_ * tags : tag;
}

std::unique_ptr<Message> SubCommunicator::send(Index to, Index tag,
                                               std::span<const std::byte> bytes) {
  check_message({MessageEnd::Kind::send, rank_, to, tag, bytes.size()}, size());
  return parent_.send(ranks_[to], parent_tag(tag), bytes);
}

std::unique_ptr<Message> SubCommunicator::receive(Index from, Index tag,
                                                  std::span<std::byte> bytes) {
  check_message({MessageEnd::Kind::receive, rank_, from, tag, bytes.size()}, size());
  return parent_.receive(ranks_[from], parent_tag(tag), bytes);
}

std::unique_ptr<Communicator> split(Communicator& communicator, Index color, Index key) {
  const std::shared_ptr<Index>& groups = detail::Access::groups(communicator);
  const auto choices = choices_of_all(communicator, {color, key, *groups});
  // A number that none of these ranks has used: they may have been in different groups before.
  const Index group = std::ranges::max(choices, {}, &Choice::groups).groups;
  *groups = group + 1;
  const auto ranks = ranks_of(color, choices);
  const Index rank = std::ranges::find(ranks, communicator.rank()) - ranks.begin();
  auto part =
      std::make_unique<SubCommunicator>(communicator, ranks, rank, 1 + group % group_spaces);
  detail::Access::groups(*part) = groups;  // groups of groups count along
  return part;
}

}  // namespace rapt::distributed
