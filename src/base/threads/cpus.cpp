#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "rapt/context.h"

namespace rapt {
using namespace detail;
namespace {

namespace fs = std::filesystem;

Index cpus_of_affinity() {
  for (std::size_t cpus = 1024; cpus <= std::size_t{1} << 20; cpus *= 2) {
    std::vector<cpu_set_t> set(CPU_ALLOC_SIZE(cpus) / sizeof(cpu_set_t));
    const std::size_t bytes = set.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, set.data()) == 0) return CPU_COUNT_S(bytes, set.data());
    if (errno != EINVAL) break;  // EINVAL: the kernel knows more CPUs than the set has room for
  }
  return std::max<Index>(1, std::thread::hardware_concurrency());
}

std::optional<double> number_in(const fs::path& file) {
  std::ifstream in(file);
  double number = 0;
  if (in >> number) return number;
  return std::nullopt;
}

/// CPUs per period that one cgroup folder grants, if it sets a limit: "max 100000" or "150000
/// 100000" in version 2, two files in version 1.
std::optional<double> quota_of(const fs::path& folder) {
  std::ifstream version_2(folder / "cpu.max");
  double quota = 0;
  double period = 0;
  if (version_2 >> quota >> period && quota > 0 && period > 0) return quota / period;
  const auto quota_us = number_in(folder / "cpu.cfs_quota_us");
  const auto period_us = number_in(folder / "cpu.cfs_period_us");
  if (quota_us && period_us && *quota_us > 0 && *period_us > 0) return *quota_us / *period_us;
  return std::nullopt;
}

/// Where the cgroups that limit this process may be mounted, from /proc/self/cgroup.
std::vector<std::pair<fs::path, fs::path>> cgroups() {
  std::vector<std::pair<fs::path, fs::path>> found;
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controllers = line.substr(first, second - first + 1);  // ":cpu,cpuacct:"
    std::replace(controllers.begin(), controllers.end(), ':', ',');
    const fs::path inside = fs::path(line.substr(second + 1)).relative_path();
    if (controllers == ",,") found.emplace_back("/sys/fs/cgroup", inside);
    if (controllers.find(",cpu,") != std::string::npos) {
      found.emplace_back("/sys/fs/cgroup/cpu", inside);
      found.emplace_back("/sys/fs/cgroup/cpu,cpuacct", inside);
    }
  }
  return found;
}

/// The tightest quota on the way from this process's cgroup up to the mount.
std::optional<double> cgroup_quota() {
  std::optional<double> tightest;
  for (const auto& [mount, inside] : cgroups()) {
    for (fs::path folder = inside;; folder = folder.parent_path()) {
      if (const auto quota = quota_of(mount / folder))
        tightest = std::min(*quota, tightest.value_or(*quota));
      if (folder.empty()) break;
    }
  }
  return tightest;
}

}  // namespace

Index usable_cpus() {
  const Index cpus = std::max<Index>(1, cpus_of_affinity());
  const std::optional<double> quota = cgroup_quota();
  if (!quota || *quota >= static_cast<double>(cpus)) return cpus;
  return std::max<Index>(1, static_cast<Index>(std::ceil(*quota)));
}

}  // namespace rapt
