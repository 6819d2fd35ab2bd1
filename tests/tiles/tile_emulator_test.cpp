#include "tiles/tile_emulator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "kernels/cpu_features.h"
#include "support/engine.h"

// The emulator itself, and that the other tests have gone through it.
namespace rapt::test {
using namespace detail;
namespace {

#define NEEDS_TILES() \
  if (!amx().usable) GTEST_SKIP() << amx().why_not

#if defined(__x86_64__)

/// [16][32] numbers that bf16 has, and their words.
struct Words {
  explicit Words(std::uint64_t seed) : words(16 * 16) {
    const Tensor numbers = random_tensor({1, 1, 16, 32}, seed);
    const Tensor halves = numbers.converted(Type::bf16);
    std::memcpy(words.begin(), halves.data<Bf16>(), 16 * 16 * 4);
    const Tensor wide = halves.converted(Type::f32);
    value.assign(wide.numbers().begin(), wide.numbers().end());
  }
  double at(Index row, Index column) const {
    return static_cast<double>(value[static_cast<std::size_t>(row * 32 + column)]);
  }
  Buffer<std::uint32_t> words;
  std::vector<float> value;
};

TEST(TileEmulator, AProductOfTilesIsTheProductOfTheirNumbers) {
  NEEDS_TILES();
  const Words left(1), right(2);
  Buffer<float> sum(2 * 16 * 16);  // every other row
  std::fill(sum.begin(), sum.end(), 3.0f);
  Tiles::configure();
  Tiles::load<2>(sum.data(), 128);
  Tiles::load<7>(left.words.data(), 64);
  Tiles::load<1>(right.words.data(), 64);
  Tiles::multiply<2, 7, 1>();
  Tiles::store<2>(sum.data(), 128);
  Tiles::release();
  for (Index r = 0; r < 16; ++r) {
    for (Index c = 0; c < 16; ++c) {
      double want = 3, size = 3;
      for (Index k = 0; k < 16; ++k) {
        for (Index half = 0; half < 2; ++half) {
          const double term = left.at(r, 2 * k + half) * right.at(k, 2 * c + half);
          want += term;
          size += std::fabs(term);
        }
      }
      EXPECT_NEAR(static_cast<double>(sum.data()[r * 32 + c]), want, 0x1p-20 * size);
      EXPECT_EQ(sum.data()[r * 32 + 16 + c], 3.0f) << "between the rows";
    }
  }
}

TEST(TileEmulator, ThreadsHaveTilesOfTheirOwn) {
  NEEDS_TILES();
  const Words mine(3), others(4);
  Buffer<std::uint32_t> kept(16 * 16);
  Tiles::configure();
  Tiles::load<5>(mine.words.data(), 64);
  std::thread([&] {
    Tiles::configure();
    Tiles::load<5>(others.words.data(), 64);
    Tiles::release();
  }).join();
  Tiles::store<5>(kept.data(), 64);
  Tiles::release();
  EXPECT_TRUE(std::equal(kept.begin(), kept.end(), mine.words.begin()));
}

TEST(TileEmulatorDeathTest, UsingTilesThatAreNotConfiguredEndsTheProgram) {
  NEEDS_TILES();
  EXPECT_EXIT(Tiles::zero<0>(), testing::ExitedWithCode(70), "has not configured");
  EXPECT_EXIT(Tiles::release(), testing::ExitedWithCode(70), "were not configured");
}

#endif

TEST(TileEmulator, AttentionGoesThroughTilesAndReleasesThem) {
  NEEDS_TILES();
  const Context tiles(2, "AMX");
  const TileCounts before = tile_counts();
  const Tensor q = random_tensor({1, 2, 128, 64}, 5).converted(Type::bf16);
  attend(q, q, q, {.pattern = causal()}, tiles);
  const TileCounts after = tile_counts();
  // Of 16 rows and 64 columns both products take 8; of rows that see the first 32 keys only, 4.
  constexpr Index whole = 4 * (8 + 8), diagonal = 2 * (4 + 4) + 2 * (8 + 8);
  EXPECT_EQ(after.products - before.products, 2 * (whole + 2 * diagonal));
  EXPECT_GT(after.configurations, before.configurations);
  EXPECT_EQ(after.configurations - before.configurations, after.releases - before.releases);
}

}  // namespace
}  // namespace rapt::test
