#pragma once

#include <mpi.h>

#include <exception>
#include <string>

#include "base/indexed_vector.h"
#include "distributed/communicator/message_text.h"
#include "rapt/distributed/communicator.h"

namespace rapt::distributed {

/// One message, in as many parts as its bytes need; parts are under way at the same time.
class MpiMessage final : public Message {
 public:
  MpiMessage(Communicator& communicator, const MessageEnd& end, Index part_bytes);
  ~MpiMessage() override;

  void post(MPI_Comm comm, std::span<const std::byte> bytes);
  void post(MPI_Comm comm, std::span<std::byte> bytes);
  bool done() override;
  std::string description() const override { return to_string(end_); }

 private:
  Index parts() const;
  Index begin_of(Index part) const { return part * part_bytes_; }
  int size_of(Index part) const;
  void check_received(Index part, const MPI_Status& status) const;
  void give_up();

  Communicator& communicator_;
  MessageEnd end_;
  Index part_bytes_;
  detail::IndexedVector<MPI_Request> requests_;
  Index done_ = 0;  // parts, from the first
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace rapt::distributed
