#include <rapt/distributed/mpi.h>

#include <cstdio>

// Every rank adds its number to the sum; one process alone is rank 0 of one.
int main() {
  bool right = false;
  rapt::distributed::run_mpi_rank([&](rapt::distributed::Communicator& communicator) {
    const rapt::Index ranks = communicator.size();
    double sum = static_cast<double>(communicator.rank());
    all_reduce_sum(communicator, std::span<double>(&sum, 1));
    right = sum == static_cast<double>(ranks * (ranks - 1) / 2);
    std::printf("rank %d of %d\n", static_cast<int>(communicator.rank()), static_cast<int>(ranks));
  });
  return right ? 0 : 1;
}
