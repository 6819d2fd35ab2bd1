#pragma once

#include "rapt/tensor.h"

namespace rapt::test {

/// Tile instructions that were done in software since the program started, on all threads.
struct TileCounts {
  Index configurations, releases, loads, stores, products;
};
TileCounts tile_counts();

/// "" if tile instructions can be run here, otherwise what is missing.
const char* why_no_emulation();

}  // namespace rapt::test
