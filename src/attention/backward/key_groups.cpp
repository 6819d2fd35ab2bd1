#include "attention/backward/key_groups.h"

namespace rapt::detail {

KeyGroups::KeyGroups(const Call& call, Index tiles)
    : tiles_(tiles), key_tiles_(call.key_tiles()), count_(divide_up(key_tiles_, tiles)) {
  if (call.part == nullptr) return;
  Index last = -1;  // group of the whole call
  for (Index j = 0; j < key_tiles_; ++j) {
    const Index group = call.whole_key_tile(j) / tiles;
    if (group != last) begins_.push_back(j);
    last = group;
    group_of_.push_back(std::ssize(begins_) - 1);
  }
  count_ = std::ssize(begins_);
  begins_.push_back(key_tiles_);
}

}  // namespace rapt::detail
