#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "rapt/distributed/communicator.h"

namespace rapt::cli {

using distributed::Communicator;

/// Where ranks come from: threads of this process, or the processes of a job of MPI.
class RankBackend {
 public:
  using RankMain = std::function<void(Communicator&)>;

  virtual ~RankBackend() = default;
  /// Runs it on so many ranks; what a rank throws ends the run. Every process of a job calls it.
  virtual void run(Index ranks, const RankMain& rank_main) = 0;
  /// How many ranks there are; nothing: as many as one likes.
  virtual std::optional<Index> size() const { return std::nullopt; }
  /// Whether this process prints.
  virtual bool prints() const { return true; }
};

/// "threads" or "mpi". Throws std::invalid_argument if this build has no MPI.
std::unique_ptr<RankBackend> rank_backend(const std::string& name);

}  // namespace rapt::cli
