#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <cstdlib>
#include <thread>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/threads/ordered_section.h"
#include "support/engine.h"
#include "support/truth/bound.h"

namespace rapt::test {
using namespace detail;
namespace {

/// Calls of different character: every score part, one-token decode, few keys, ragged, one big
/// head.
std::vector<Case> calls() {
  std::vector<Case> cases;
  for (const char* line :
       {"batch=2; heads=4; kv_heads=2; queries=150; keys=210; dim=24; value_dim=40; pattern=causal;"
        " scale=log_n; softcap=30; bias=alibi+kerple_log+t5+shaw+shaw_values+dense; sinks=1; "
        "dropout=0.2",
        "heads=4; kv_heads=1; queries=1; keys=5000; dim=64; value_dim=64",
        "heads=2; kv_heads=2; queries=3000; keys=7; dim=8; value_dim=8; bias=dense_keys",
        "batch=3; heads=2; kv_heads=1; queries=130; keys=130; dim=16; value_dim=16; "
        "pattern=causal & documents({40, 1, 60})",
        "queries=700; keys=700; dim=32; value_dim=32; pattern=window(50, 50) | tokens({0, 350});"
        " bias=dense_row+t5"})
    cases.push_back(parse_case(line));
  return cases;
}

Answer run_with_stats(const Case& c, const Context& context) {
  Operands operands(c);
  operands.how.stats = true;
  return run(operands, context);
}

TEST(Determinism, AnyNumberOfThreadsGivesTheSameBits) {
  for (const Case& c : calls())
    for (const std::string& isa : supported_isas()) {
      const Answer want = run_with_stats(c, Context(1, isa));
      for (const Index threads : {2, 3, 7}) {
        const Answer got = run_with_stats(c, Context(threads, isa));
        EXPECT_SAME_BITS(got.forward, want.forward) << threads << " threads, " << c.repro();
        EXPECT_SAME_BITS(got.backward, want.backward) << threads << " threads, " << c.repro();
      }
    }
}

void expect_repeats_are_equal(int repeats) {
  for (const Case& c : calls()) {
    const Context context(3);
    const Answer want = run_with_stats(c, context);
    for (int repeat = 0; repeat < repeats; ++repeat) {
      const Answer got = run_with_stats(c, context);
      ASSERT_EQ(different_bits(got.forward, want.forward), "") << c.repro();
      ASSERT_EQ(different_bits(got.backward, want.backward), "") << c.repro();
    }
  }
}

TEST(Determinism, TheSameCallGivesTheSameBits) { expect_repeats_are_equal(8); }

TEST(SlowDeterminism, AThousandCallsGiveTheSameBits) { expect_repeats_are_equal(1000 / 5); }

TEST(Determinism, BatchNeighboursDoNotMatter) {
  for (const Context& context : every_isa()) {
    Small all({5, 4, 75, 16}, {5, 2, 90, 16});
    all.how.pattern = causal() & window(33, 0);
    const Answer together = all.answer(context);
    for (Index item = 0; item < 5; ++item) {
      const auto alone = [&](const Tensor& tensor) {
        const Shape shape{1, tensor.shape()[1], tensor.shape()[2], tensor.shape()[3]};
        return View::unchecked(tensor.view().row(item, 0, 0), shape, shape.row_major());
      };
      const Answer got =
          run(alone(all.dout), alone(all.q), alone(all.k), alone(all.v), all.how, context);
      const auto part = [&](const Tensor& tensor) {
        const auto size = static_cast<std::size_t>(tensor.elements() / 5);
        return tensor.numbers().subspan(static_cast<std::size_t>(item) * size, size);
      };
      EXPECT_SAME_BITS("out", got.forward.out.numbers(), part(together.forward.out));
      EXPECT_SAME_BITS("lse", got.forward.lse.numbers(), part(together.forward.lse));
      EXPECT_SAME_BITS("dq", got.backward.dq.numbers(), part(together.backward.dq));
      EXPECT_SAME_BITS("dk", got.backward.dk.numbers(), part(together.backward.dk));
      EXPECT_SAME_BITS("dv", got.backward.dv.numbers(), part(together.backward.dv));
    }
  }
}

TEST(Determinism, LayoutDoesNotMatter) {
  for (const Context& context : every_isa()) {
    Case c = parse_case(
        "batch=2; heads=4; kv_heads=2; queries=70; keys=130; dim=17; value_dim=9; "
        "pattern=causal; bias=alibi");
    const Answer want = run(Operands(c), context);
    for (const char* layout : {"bnhd", "fused", "odd", "misaligned", "reversed"}) {
      c.layout = layout;
      const Answer got = run(Operands(c), context);
      EXPECT_SAME_BITS(got.forward, want.forward) << where(c, context);
      EXPECT_SAME_BITS(got.backward, want.backward) << where(c, context);
    }
  }
}

TEST(Determinism, ManyCallersMayShareAContext) {
  const Case c = calls().front();
  const Context context(2);
  const Answer want = run_with_stats(c, context);
  std::vector<std::string> differences(6);
  std::vector<std::thread> callers;
  for (std::string& difference : differences)
    callers.emplace_back([&] {
      const Answer got = run_with_stats(c, context);
      difference =
          different_bits(got.forward, want.forward) + different_bits(got.backward, want.backward);
    });
  for (std::thread& caller : callers) caller.join();
  for (const std::string& difference : differences) EXPECT_EQ(difference, "");
}

TEST(Determinism, ContextsComeAndGo) {
  const auto thread_count = [] {
    Index count = 0;
    if (FILE* status = std::fopen("/proc/self/status", "r")) {
      char line[256];
      while (std::fgets(line, sizeof line, status)) std::sscanf(line, "Threads: %ld", &count);
      std::fclose(status);
    }
    return count;
  };
  const Small small({1, 2, 65, 8}, {1, 2, 65, 8});
  const Answer want = small.answer(Context(2));
  const Index before = thread_count();
  for (int cycle = 0; cycle < 300; ++cycle)
    ASSERT_EQ(different_bits(small.answer(Context(1 + cycle % 4)).forward, want.forward), "");
  EXPECT_LE(thread_count(), before + 8);
}

#if defined(__x86_64__)

TEST(FloatingPointState, IsTheSameAfterACallAndDoesNotMatterBefore) {
  const unsigned before = _mm_getcsr();
  const std::vector<Case> cases = calls();
  const Operands operands(cases.front());
  for (const Context& context : every_isa()) {
    const Answer want = run(operands, context);
    // flush to zero, subnormals are zero, round down, up, to zero, a sticky flag
    for (const unsigned mode : {0x8000u, 0x0040u, 0x2000u, 0x4000u, 0x6000u, 0x0020u}) {
      _mm_setcsr(0x1f80u | mode);
      const Answer got = run(operands, context);
      const unsigned after = _mm_getcsr();
      _mm_setcsr(before);
      EXPECT_EQ(after, 0x1f80u | mode) << context.isa();
      EXPECT_SAME_BITS(got.forward, want.forward) << mode << " on " << context.isa();
      EXPECT_SAME_BITS(got.backward, want.backward) << mode << " on " << context.isa();
    }
    _mm_setcsr(0x1f80u);
    run(operands, context);
    EXPECT_EQ(_mm_getcsr(), 0x1f80u) << "exception flags on " << context.isa();
    _mm_setcsr(before);
  }
}

TEST(FloatingPointStateDeathTest, TrapsOfTheCallerAreNotSprung) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Small small({1, 1, 9, 8}, {1, 1, 4, 8});
  small.how.pattern = causal();
  small.q.numbers()[70] = INFINITY;
  for (const std::string& isa : supported_isas())
    EXPECT_EXIT(
        {
          const Context context(2, isa);
          feenableexcept(FE_INVALID | FE_OVERFLOW | FE_UNDERFLOW | FE_DIVBYZERO);
          small.answer(context);
          std::_Exit(0);
        },
        ::testing::ExitedWithCode(0), "")
        << isa;
}

#endif

TEST(Determinism, TheOrderOfKeyGroupsShowsInNoBit) {
  // Groups of keys that cancel but for the last: in another order the small ones would be lost.
  Small small({1, 1, 2000, 8}, {1, 1, 6 * 256, 8});
  std::fill(small.q.numbers().begin(), small.q.numbers().end(), 0.0f);
  const float sizes[] = {1, -1, 1, -1, 1e-9f, 3e-10f};
  for (Index key = 256; key < 6 * 256; ++key)
    for (Index c = 0; c < 8; ++c) {
      at(small.v, 0, 0, key, c) = at(small.v, 0, 0, key % 256, c);
      at(small.k, 0, 0, key, c) = at(small.k, 0, 0, key % 256, c) * sizes[key / 256];
    }
  const Answer want = small.answer(Context(1));
  for (int run = 0; run < 20; ++run)
    EXPECT_SAME_BITS(small.answer(Context(7)).backward, want.backward);
}

TEST(Determinism, OrderedSectionsRunInOrder) {
  constexpr Index count = 8;
  OrderedSection section(2);
  std::vector<Index> order;
  std::vector<std::thread> threads;
  for (Index position = count - 1; position >= 0; --position)
    threads.emplace_back([&, position] {
      section.enter(1, position);
      order.push_back(position);
      section.release(1);
    });
  for (std::thread& thread : threads) thread.join();
  for (Index position = 0; position < count; ++position)
    EXPECT_EQ(order[static_cast<std::size_t>(position)], position);
}

TEST(Determinism, TasksAfterAFailedSectionFailToo) {
  OrderedSection section(1);
  std::thread failing([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    section.abort(std::make_exception_ptr(std::bad_alloc()));
  });
  EXPECT_THROW(section.enter(0, 1), std::bad_alloc);
  failing.join();
}

}  // namespace
}  // namespace rapt::test
