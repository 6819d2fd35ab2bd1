// Threads: every task once, as many threads as asked for, and what happens where there are none.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/threads/threads.h"

namespace rapt::test {
using namespace detail;
namespace {

constexpr Index thread_counts[] = {1, 2, 3, 7};

/// How many threads run tasks at the same time.
Index threads_at_work(const Threads& threads) {
  std::mutex mutex;
  std::condition_variable all_here;
  std::set<std::thread::id> seen;
  const auto all = static_cast<std::size_t>(threads.count());
  threads.for_each_task(threads.count(), [&](Index, Index) {
    std::unique_lock lock(mutex);
    seen.insert(std::this_thread::get_id());
    all_here.notify_all();
    // A busy machine may take its time to start them.
    all_here.wait_for(lock, std::chrono::seconds(20), [&] { return seen.size() == all; });
  });
  return static_cast<Index>(seen.size());
}

/// The exit code of a child process that runs this and nothing else; -1 if it ended by a signal.
template <class Run>
int exit_code_of_child(const Run& run) {
  const pid_t child = fork();
  if (child == 0) _exit(run());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
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

TEST(Threads, AreAsManyAsAskedForEvenBeyondTheCpus) { EXPECT_EQ(threads_at_work(Threads(7)), 7); }

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
  for (const Index count : {Index{0}, Index{1025}}) {
    std::string message = "no error";
    try {
      Threads{count};
    } catch (const std::invalid_argument& error) {
      message = error.what();
    }
    EXPECT_EQ(message, "threads: " + std::to_string(count) + " given, expected 1 to 1024");
  }
}

TEST(Threads, FlushSubnormalsInsideTasksOnly) {
  const volatile float tiny = 1e-38F;
  for (const Index count : thread_counts) {
    const Threads threads(count);
    threads.for_each_task(20, [&](Index, Index) { EXPECT_EQ(tiny * tiny + tiny * 0.01F, 0); });
    EXPECT_NE(tiny * 0.01F, 0);
  }
}

TEST(Threads, EndWithTheirOwner) {
  const auto running = [] {
    std::ifstream status("/proc/self/status");
    std::string word;
    while (status >> word && word != "Threads:") continue;
    Index count = 0;
    status >> count;
    return count;
  };
  const Index before = running();
  {
    const Threads threads(9);
    EXPECT_EQ(running(), before);  // no loop, no threads
    EXPECT_EQ(threads_at_work(threads), 9);
    EXPECT_EQ(running(), before + 8);
  }
  for (int wait = 0; wait < 1000 && running() != before; ++wait)  // the kernel counts a bit longer
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(running(), before);
}

#if !defined(__SANITIZE_THREAD__)  // it lets no child of a threaded process start threads
TEST(Threads, OfAChildProcessAreItsOwn) {
  const Threads threads(3);
  for (int child = 0; child < 20; ++child) {  // also while helpers spin, and hold their mutex
    EXPECT_EQ(threads_at_work(threads), 3);
    EXPECT_EQ(exit_code_of_child([&] {
                const Index grandchild =
                    exit_code_of_child([&] { return static_cast<int>(threads_at_work(threads)); });
                const Threads copy(2);
                return static_cast<int>(10 * threads_at_work(threads) + grandchild) +
                       static_cast<int>(100 * (threads_at_work(copy) - 2));
              }),
              33);
  }
}
#endif

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // they need the addresses
TEST(Threads, ThatCannotAllStartAreAnErrorAndMayStartLater) {
  const auto run = [] {
    const Threads threads(200);
    rlimit before{};
    getrlimit(RLIMIT_AS, &before);
    const rlimit little{Index{64} << 20, before.rlim_max};  // less than is in use: no stack fits
    if (setrlimit(RLIMIT_AS, &little) != 0) return 2;
    Index runs = 0;
    std::string message;
    try {
      threads.for_each_task(200, [&](Index, Index) { ++runs; });
    } catch (const std::system_error& error) {
      message = error.what();
    }
    setrlimit(RLIMIT_AS, &before);
    // Stacks of earlier threads may serve some of these.
    const bool clear = message.find("threads: only ") == 0 &&
                       message.find(" of 200 start (ask for fewer, or raise") != message.npos;
    if (runs != 0 || !clear) return 3;
    return threads_at_work(threads) == 200 ? 0 : 4;
  };
  EXPECT_EQ(exit_code_of_child(run), 0);
}
#endif

}  // namespace
}  // namespace rapt::test
