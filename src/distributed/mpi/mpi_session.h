#pragma once

#include <exception>
#include <memory>

namespace rapt::distributed {

/// MPI between its initialization and its end, shared by all communicators of the process. It ends
/// what it began only: a program that initializes MPI itself also finalizes it.
class MpiSession {
 public:
  static std::shared_ptr<MpiSession> shared();
  MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  ~MpiSession();

 private:
  bool ours_ = false;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace rapt::distributed
