#pragma once

#include <sstream>
#include <string>

#include "base/check.h"
#include "distributed/communicator/tags.h"
#include "rapt/distributed/communicator.h"

namespace rapt::distributed {

/// One message as a rank sees it: what every transport checks and says of it.
struct MessageEnd {
  enum class Kind { send, receive };
  Kind kind;
  Index rank;
  Index peer;
  Index tag;
  std::size_t bytes;

  bool sends() const { return kind == Kind::send; }
};

inline std::string tag_text(Index tag) {
  if (tag >= first_collective_tag) return collective_name(tag);
  const std::string number = "tag " + std::to_string(tag % Communicator::tags);
  return tag < Communicator::tags ? number : number + " of a group";
}

/// "rank 0 receiving 4096 bytes from rank 2 (tag 3)"
inline std::string to_string(const MessageEnd& end) {
  std::ostringstream text;
  text << "rank " << end.rank << (end.sends() ? " sending " : " receiving ") << end.bytes
       << " bytes " << (end.sends() ? "to" : "from") << " rank " << end.peer << " ("
       << tag_text(end.tag) << ")";
  return text.str();
}

/// Throws std::invalid_argument unless the rank and the tag exist.
inline void check_message(const MessageEnd& end, Index size) {
  const char* call = end.sends() ? "send" : "receive";
  detail::check(end.peer >= 0 && end.peer < size, call, ": rank ", end.peer,
                " given, expected 0 to ", size - 1);
  detail::check(end.tag >= 0 && end.tag < Communicator::transport_tags, call, ": tag ", end.tag,
                " given, expected 0 to ", Communicator::tags - 1);
}

/// Why a run ends whose message was destroyed too early.
inline std::string unfinished_text(const MessageEnd& end) {
  return to_string(end) + ": the message was destroyed before it was done; wait for it first";
}

}  // namespace rapt::distributed
