// What src/base promises: memory, sizes, threads, the floating-point mode.

#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "base/fpmode.h"
#include "base/loop.h"
#include "base/sizes.h"
#include "base/threads.h"
#include "rapt/context.h"

namespace rapt::test {
namespace {

constexpr Index thread_counts[] = {1, 2, 3, 7};

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

bool aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 64 == 0; }

TEST(Sizes, AProductOrSumThatDoesNotFitIsAnError) {
  const Index half = Index{1} << 32;
  EXPECT_EQ(checked_product({3, 5, 7}), 105);
  EXPECT_EQ(message_of([&] {
              checked_product({half, half});
            }),
            "size overflow: a product with factor 4294967296 does not fit 64 bits");
  EXPECT_EQ(checked_sum({3, 5, 7}), 15);
  EXPECT_EQ(message_of([&] {
              checked_sum({std::numeric_limits<Index>::max(), 1});
            }),
            "size overflow: a sum with term 1 does not fit 64 bits");
}

TEST(Buffer, IsAlignedAndMovesItsMemory) {
  Buffer<float> a(3);
  EXPECT_TRUE(aligned(a.data()));
  float* data = a.data();
  Buffer<float> b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.size(), 0);
  EXPECT_EQ(Buffer<double>(0).data(), nullptr);
}

TEST(Buffer, RefusesImpossibleSizes) {
  EXPECT_EQ(message_of([] { Buffer<float>(-1); }), "a buffer cannot have -1 elements");
  EXPECT_THROW(Buffer<double>(Index{1} << 61), std::invalid_argument);
}

TEST(Shape, RefusesWhatItCannotHold) {
  EXPECT_EQ(message_of([] {
              Shape({1, 2, 3, 4, 5});
            }),
            "shape: 5 axes given, at most 4 are supported");
  EXPECT_EQ(message_of([] {
              Shape({2, -1}).elements();
            }),
            "shape [2, -1]: axis 1 has a negative size");
  const Index huge = Index{1} << 40;
  EXPECT_EQ(message_of([&] {
              Shape({huge, huge}).elements();
            }),
            "shape [1099511627776, 1099511627776]: the number of elements does not fit 64 bits");
  EXPECT_EQ(Shape({0, huge, huge, huge}).elements(), 0);
  EXPECT_EQ(Shape({0, huge, huge, huge}).row_major()[3], 1);
}

TEST(View, ReachesOnlyNumbersItWasGiven) {
  const std::vector<float> numbers(120);
  EXPECT_EQ(View(numbers, {2, 3, 4, 5}).strides(), (Shape{60, 20, 5, 1}));
  EXPECT_EQ(View(numbers, {2, 60}, {0, 2}).size(1), 60);
  EXPECT_EQ(message_of([&] {
              View(numbers, {2, 3, 4, 6});
            }),
            "view: shape [2, 3, 4, 6] with strides [72, 24, 6, 1] reaches elements 0 to 143 of "
            "only 120 numbers");
  EXPECT_EQ(message_of([&] {
              View(numbers, {2, 3}, {1, -1});
            }),
            "view: shape [2, 3] with strides [1, -1] reaches elements -2 to 1 of only 120 numbers");
  EXPECT_EQ(message_of([&] {
              View(numbers, {2, 3}, {1, 1, 1});
            }),
            "view: shape [2, 3] has 2 axes but strides [1, 1, 1] have 3");
  const Index huge = Index{1} << 62;
  EXPECT_EQ(message_of([&] {
              View(numbers, {1, huge}, {1, 4});
            }),
            "view: shape [1, 4611686018427387904] with strides [1, 4] reaches beyond 64 bits");
  EXPECT_EQ(message_of([&] { View(numbers, {0, huge, 1}, {7, -3, 1}); }), "no error");
}

TEST(View, SwapsAxesWithoutMovingNumbers) {
  const std::vector<float> numbers(24);
  const View heads_first = View(numbers, {1, 4, 2, 3}).swapped(1, 2);
  EXPECT_EQ(heads_first.shape(), (Shape{1, 2, 4, 3}));
  EXPECT_EQ(heads_first.strides(), (Shape{24, 3, 6, 1}));
  EXPECT_EQ(message_of([&] { heads_first.swapped(1, 4); }),
            "view: cannot swap axes 1 and 4 of shape [1, 2, 4, 3]");
}

TEST(Tensor, StartsAsAlignedZerosAndClones) {
  for (const Index rows : {1, 1000, 1000000}) {
    Tensor a({rows, 3});
    EXPECT_TRUE(aligned(a.data()));
    for (const float x : a.numbers()) ASSERT_EQ(x, 0);
    a.numbers().back() = 1;
    const Tensor b = a.clone();
    EXPECT_NE(a.data(), b.data());
    EXPECT_EQ(b.numbers().back(), 1);
  }
}

TEST(Threads, RunEveryTaskOnceWithWorkersOfTheirOwn) {
  for (const Index count : thread_counts) {
    const Threads threads(count);
    for (int repeat = 0; repeat < 100; ++repeat) {
      std::vector<int> runs(50);
      std::vector<std::atomic<int>> busy(static_cast<std::size_t>(count));
      const auto run = [&](Index task, Index worker) {
        EXPECT_EQ(busy[static_cast<std::size_t>(worker)]++, 0);
        ++runs[static_cast<std::size_t>(task)];
        --busy[static_cast<std::size_t>(worker)];
      };
      threads.for_each_task(50, run);
      EXPECT_EQ(runs, std::vector<int>(50, 1));
      threads.for_each_task_at_home(50, run);
      EXPECT_EQ(runs, std::vector<int>(50, 2));
    }
  }
}

TEST(Threads, BeginWithARunOfTasksOfTheirOwn) {
  const Threads threads(3);
  std::mutex mutex;
  std::condition_variable all_here;
  std::set<Index> first;
  threads.for_each_task_at_home(31, [&](Index task, Index) {
    std::unique_lock lock(mutex);
    if (first.size() == 3) return;
    first.insert(task);
    all_here.notify_all();
    all_here.wait_for(lock, std::chrono::seconds(20), [&] { return first.size() == 3; });
  });
  EXPECT_EQ(first, (std::set<Index>{0, 10, 20}));
}

TEST(Standby, SendsForNoMoreHelpersThanThereMayBe) {
  Standby standby(2);
  const std::function<void(Index, Index)> nothing = [](Index, Index) {};
  const auto loop = std::make_shared<Loop>(5, 1, nothing);
  EXPECT_EQ(standby.invite(loop, 3), 2);
  EXPECT_EQ(standby.invite(loop, 3), 0);  // both are busy
  standby.excuse(1);
  EXPECT_EQ(standby.invite(loop, 3), 1);
  EXPECT_EQ(standby.next(), nullptr);  // looked out in vain, and left
  EXPECT_EQ(standby.invite(loop, 3), 1);
}

TEST(Threads, AreAsManyAsAskedForEvenBeyondTheCpus) {
  const Threads threads(7);
  std::mutex mutex;
  std::condition_variable all_here;
  std::set<std::thread::id> seen;
  threads.for_each_task(7, [&](Index, Index) {
    std::unique_lock lock(mutex);
    seen.insert(std::this_thread::get_id());
    all_here.notify_all();
    // A busy machine may take its time to start them.
    all_here.wait_for(lock, std::chrono::seconds(20), [&] { return seen.size() == 7; });
  });
  EXPECT_EQ(seen.size(), 7U);
}

TEST(Threads, HandOnTheFirstErrorAndStop) {
  for (const Index count : thread_counts) {
    const Threads threads(count);
    std::atomic<Index> started = 0;
    const auto fail_at_ten = [&](Index task, Index) {
      ++started;
      if (task == 10) throw std::runtime_error("ten");
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    };
    EXPECT_THROW(threads.for_each_task(1000000, fail_at_ten), std::runtime_error);
    EXPECT_LT(started, 100000);
    EXPECT_THROW(threads.for_each_task_at_home(1000000, fail_at_ten), std::runtime_error);
    threads.for_each_task(3, [&](Index, Index) { started = 0; });
    EXPECT_EQ(started, 0);
  }
}

TEST(Threads, MayNestAndMayBeShared) {
  const Threads threads(3);
  std::atomic<Index> runs = 0;
  const auto nest = [&] {
    for (int repeat = 0; repeat < 20; ++repeat)
      threads.for_each_task(
          5, [&](Index, Index) { threads.for_each_task(5, [&](Index, Index) { ++runs; }); });
  };
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) callers.emplace_back(nest);
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(runs, 4 * 20 * 25);
}

TEST(Threads, RefuseImpossibleCounts) {
  EXPECT_EQ(message_of([] { Threads(0); }), "threads: 0 given, expected 1 to 1024");
  EXPECT_EQ(message_of([] { Threads(1025); }), "threads: 1025 given, expected 1 to 1024");
}

TEST(Threads, FlushSubnormalsInsideTasksOnly) {
  const volatile float tiny = 1e-38F;
  for (const Index count : thread_counts) {
    const Threads threads(count);
    threads.for_each_task(20, [&](Index, Index) { EXPECT_EQ(tiny * tiny + tiny * 0.01F, 0); });
    EXPECT_NE(tiny * 0.01F, 0);
  }
}

TEST(FlushDenormals, GivesBackRoundingAndStickyFlags) {
  const volatile float three = 3;
  std::fesetround(FE_UPWARD);
  std::feclearexcept(FE_ALL_EXCEPT);
  std::feraiseexcept(FE_OVERFLOW);
  {
    const FlushDenormals guard;
    EXPECT_EQ(-1 / three, -0x1.555556p-2F);
    std::feraiseexcept(FE_INVALID);
  }
  EXPECT_EQ(-1 / three, -0x1.555554p-2F);
  EXPECT_EQ(std::fetestexcept(FE_INVALID | FE_OVERFLOW), FE_OVERFLOW);
  std::fesetround(FE_TONEAREST);
  std::feclearexcept(FE_ALL_EXCEPT);
}

TEST(Context, ReadsTheEnvironmentAndRefusesNonsense) {
  ASSERT_EQ(setenv("RAPT_THREADS", "3", 1), 0);
  EXPECT_EQ(Context().threads(), 3);
  EXPECT_EQ(Context(0, supported_isas().back()).threads(), 3);
  EXPECT_EQ(Context(2).threads(), 2);
  ASSERT_EQ(setenv("RAPT_THREADS", "3x", 1), 0);
  EXPECT_EQ(message_of([] { Context(); }),
            "RAPT_THREADS is \"3x\", expected a number from 1 to 1024");
  unsetenv("RAPT_THREADS");
  ASSERT_EQ(setenv("RAPT_ISA", supported_isas().back().c_str(), 1), 0);
  EXPECT_EQ(Context().isa(), supported_isas().back());
  ASSERT_EQ(setenv("RAPT_ISA", "MMX", 1), 0);
  EXPECT_NE(message_of([] { Context(); }).find("RAPT_ISA: instruction set \"MMX\""),
            std::string::npos);
  unsetenv("RAPT_ISA");
  EXPECT_EQ(message_of([] { Context(-1); }),
            "context: -1 threads given, expected 0 (the default) or more");
}

TEST(Machine, HasCpusAndAVersion) {
  EXPECT_GE(usable_cpus(), 1);
  EXPECT_EQ(version(), RAPT_VERSION);
}

}  // namespace
}  // namespace rapt::test
