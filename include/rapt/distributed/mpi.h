#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "rapt/distributed/communicator.h"

// Ranks that are processes which mpirun, srun or another launcher of MPI has started. A library of
// its own: find_package(rapt COMPONENTS mpi), rapt::mpi.

namespace rapt::distributed {

struct MpiOptions {
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// Your communicator as MPI_Comm_c2f gives it, of which rapt uses a duplicate; that of all
  /// processes if there is none.
  std::optional<int> communicator = std::nullopt;
  /// Longer messages are sent in parts, as MPI counts bytes in 32 bits. The same on every rank.
  Index part_bytes = Index{1} << 30;
};

/// This process as a rank. Every process of the job calls it.
///
/// Initializes MPI unless you have, and then finalizes it after the last communicator, which is
/// after the last one it can make: keep it for as long as the program needs ranks. Throws
/// std::runtime_error with MPI's text if that fails.
RAPT_API std::unique_ptr<Communicator> mpi_communicator(const MpiOptions& options = {});

/// Runs `rank_main` as this process's rank. What it throws ends the job on all ranks: its text is
/// written to stderr, and the launcher's exit code is not 0.
RAPT_API void run_mpi_rank(const std::function<void(Communicator&)>& rank_main,
                           const MpiOptions& options = {});

}  // namespace rapt::distributed
