#include "cli/bench/child_process.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <new>

namespace rapt::cli {
namespace {

/// Leaves without flushing what the parent had not printed yet.
[[noreturn]] void work_and_exit(const std::function<Index()>& work, Index& result) {
  try {
    result = work();
    _exit(0);
  } catch (const std::exception&) {
    _exit(1);  // the parent will meet the same trouble, and report it
  }
}

bool succeeded(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return false;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

std::optional<Index> in_child(const std::function<Index()>& work) {
  SharedBytes memory(sizeof(Index));
  Index& result = memory.numbers<Index>(0, 1).front();
  const pid_t child = fork();
  if (child == 0) work_and_exit(work, result);
  if (child < 0 || !succeeded(child)) return std::nullopt;
  return result;
}

SharedBytes::SharedBytes(Index bytes) : bytes_(static_cast<std::size_t>(bytes)) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<char*>(memory);
}

SharedBytes::~SharedBytes() { munmap(data_, bytes_); }

}  // namespace rapt::cli
