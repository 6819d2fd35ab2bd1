#pragma once

#include "rapt/distributed/communicator.h"

namespace rapt::cli {

/// What messages between ranks 0 and 1 take here.
struct RankNetwork {
  double gbits = 0;  // in each direction at once
  double latency_us = 0;
};

/// Every rank calls it, and has the result.
RankNetwork measure_network(distributed::Communicator& communicator);

/// Returns when every rank has called it. Waiting ranks leave the CPUs to the one that computes.
void quiet_barrier(distributed::Communicator& communicator);

}  // namespace rapt::cli
