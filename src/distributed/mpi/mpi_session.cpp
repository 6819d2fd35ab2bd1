#include "distributed/mpi/mpi_session.h"

#include <mutex>

#include "distributed/mpi/mpi_call.h"

namespace rapt::distributed {
namespace {

/// Whether one of MPI's two questions about itself is answered with yes.
bool holds(int (*question)(int*)) {
  int answer = 0;
  check_mpi(question(&answer), "is it initialized");
  return answer != 0;
}

}  // namespace

std::shared_ptr<MpiSession> MpiSession::shared() {
  static std::mutex mutex;
  static std::weak_ptr<MpiSession> alive;
  const std::lock_guard lock(mutex);
  std::shared_ptr<MpiSession> session = alive.lock();
  if (!session) alive = session = std::make_shared<MpiSession>();
  return session;
}

MpiSession::MpiSession() {
  detail::check_input(!holds(MPI_Finalized), "mpi: MPI has been finalized, which it can be once ",
                      "only; keep the first communicator until the program needs no other");
  if (holds(MPI_Initialized)) return;
  int level = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
  ours_ = true;
  detail::check_input(level >= MPI_THREAD_SERIALIZED, "mpi: thread level ", level,
                      " provided, expected MPI_THREAD_SERIALIZED (", MPI_THREAD_SERIALIZED,
                      "); use an MPI library that was built with threads");
}

MpiSession::~MpiSession() {
  // MPI_Finalize waits for ranks that wait for this one. Without it the launcher ends the job.
  if (!ours_ || std::uncaught_exceptions() > exceptions_) return;
  MPI_Finalize();
}

}  // namespace rapt::distributed
