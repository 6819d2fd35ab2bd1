#include "cli/ranks/rank_backend.h"

#include <chrono>
#include <stdexcept>
#include <thread>

#ifdef RAPT_HAS_MPI
#include "rapt/distributed/mpi.h"
#endif

namespace rapt::cli {
namespace {

/// Long enough for one call of a rank that shares its CPU.
constexpr std::chrono::minutes timeout(30);

class ThreadBackend final : public RankBackend {
 public:
  void run(Index ranks, const RankMain& rank_main) override {
    distributed::run_ranks(ranks, rank_main, {.timeout = timeout});
  }
};

#ifdef RAPT_HAS_MPI
class MpiBackend final : public RankBackend {
 public:
  MpiBackend() : all_(distributed::mpi_communicator({.timeout = timeout})) {}

  void run(Index ranks, const RankMain& rank_main) override {
    try {
      check_ranks(ranks);
      const bool takes_part = all_->rank() < ranks;
      const auto group = distributed::split(*all_, takes_part ? 0 : 1);
      if (takes_part) rank_main(*group);
    } catch (const std::exception& error) {
      all_->abort(error.what());
    }
  }
  std::optional<Index> size() const override { return all_->size(); }
  bool prints() const override { return all_->rank() == 0; }

 private:
  void check_ranks(Index ranks) const {
    if (ranks <= all_->size()) return;
    if (!prints()) std::this_thread::sleep_for(std::chrono::seconds(5));  // rank 0 says it
    throw std::invalid_argument("--ranks is " + std::to_string(ranks) + ", but the job has " +
                                std::to_string(all_->size()) + ", expected at most as many");
  }

  std::unique_ptr<Communicator> all_;
};
#endif

std::unique_ptr<RankBackend> mpi_backend() {
#ifdef RAPT_HAS_MPI
  return std::make_unique<MpiBackend>();
#else
  throw std::invalid_argument(
      "--backend mpi: rapt has no MPI in it, expected rapt-mpi, the same command with it; "
      "scripts/setup --mpi installs MPI, then build again");
#endif
}

}  // namespace

std::unique_ptr<RankBackend> rank_backend(const std::string& name) {
  if (name == "mpi") return mpi_backend();
  return std::make_unique<ThreadBackend>();
}

}  // namespace rapt::cli
