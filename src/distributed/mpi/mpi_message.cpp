#include "distributed/mpi/mpi_message.h"

#include <algorithm>

#include "distributed/mpi/mpi_call.h"

namespace rapt::distributed {

MpiMessage::MpiMessage(Communicator& communicator, const MessageEnd& end, Index part_bytes)
    : communicator_(communicator), end_(end), part_bytes_(part_bytes) {
  requests_.reserve(parts());
}

MpiMessage::~MpiMessage() {
  if (done_ == std::ssize(requests_)) return;
  if (std::uncaught_exceptions() <= exceptions_) communicator_.abort(unfinished_text(end_));
  give_up();
}

/// A message without bytes is one part without bytes.
Index MpiMessage::parts() const {
  return std::max<Index>(1, detail::divide_up(static_cast<Index>(end_.bytes), part_bytes_));
}

int MpiMessage::size_of(Index part) const {
  return static_cast<int>(std::min(part_bytes_, static_cast<Index>(end_.bytes) - begin_of(part)));
}

void MpiMessage::post(MPI_Comm comm, std::span<const std::byte> bytes) {
  for (Index part = 0; part < parts(); ++part) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(bytes.data() + begin_of(part), size_of(part), MPI_BYTE,
                        static_cast<int>(end_.peer), static_cast<int>(end_.tag), comm, &request),
              description());
    requests_.push_back(request);
  }
}

void MpiMessage::post(MPI_Comm comm, std::span<std::byte> bytes) {
  for (Index part = 0; part < parts(); ++part) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Irecv(bytes.data() + begin_of(part), size_of(part), MPI_BYTE,
                        static_cast<int>(end_.peer), static_cast<int>(end_.tag), comm, &request),
              description());
    requests_.push_back(request);
  }
}

bool MpiMessage::done() {
  while (done_ < std::ssize(requests_)) {
    int arrived = 0;
    MPI_Status status;
    const int code = MPI_Test(&requests_[done_], &arrived, &status);
    if (code == MPI_SUCCESS && arrived == 0) return false;
    const Index part = done_++;  // an error is its end, too
    check_mpi(code, description());
    if (!end_.sends()) check_received(part, status);
  }
  return true;
}

/// A longer message is an error to MPI, a shorter one is not.
void MpiMessage::check_received(Index part, const MPI_Status& status) const {
  int bytes = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), description());
  detail::check(bytes == size_of(part), description(), ": rank ", end_.peer, " sends ",
                begin_of(part) + bytes, " bytes");
}

/// The run is about to end, so no rank waits for these parts: the other rank may never answer.
void MpiMessage::give_up() {
  for (; done_ < std::ssize(requests_); ++done_) {
    MPI_Request& request = requests_[done_];
    if (request == MPI_REQUEST_NULL) continue;
    if (!end_.sends()) MPI_Cancel(&request);
    MPI_Request_free(&request);
  }
}

}  // namespace rapt::distributed
