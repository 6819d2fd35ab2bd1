// Random shapes, strides, patterns and scores against the fp64 definition, on every instruction
// set.
//
//   fuzz_attention [--seconds S] [--cases N] [--seed K]     until either limit is reached
//   fuzz_attention --repro "batch=1; heads=2; ..."          one case again

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>

#include "support/cases.h"
#include "support/engine.h"
#include "support/truth/bound.h"
#include "support/truth/definition.h"

namespace rapt::test {
namespace {

struct Options {
  double seconds = 10;
  Index cases = 1'000'000'000;
  std::uint64_t seed = 1;
  std::string repro;
};

Options parse(int count, char** words) {
  Options options;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string name = words[i], value = words[i + 1];
    if (name == "--seconds")
      options.seconds = std::stod(value);
    else if (name == "--cases")
      options.cases = std::stoll(value);
    else if (name == "--seed")
      options.seed = std::stoull(value);
    else if (name == "--repro")
      options.repro = value;
    else
      throw std::invalid_argument("no option is called " + name);
  }
  if (count % 2 == 0) throw std::invalid_argument(std::string(words[count - 1]) + " has no value");
  return options;
}

/// "" or what is wrong with the answers to this case.
std::string faults(const Case& c) {
  Operands o(c);
  o.how.stats = c.seed % 2 == 0;
  return beyond_bound(o, c.repro());
}

/// Exceptions are faults too: every drawn case is a legal call.
bool passes(const Case& c) {
  std::string text;
  try {
    text = faults(c);
  } catch (const std::exception& error) {
    text = std::string("threw: ") + error.what() + '\n';
  }
  if (text.empty()) return true;
  std::cerr << text << "fuzz_attention --repro \"" << c.repro() << "\"\n";
  return false;
}

int fuzz(const Options& options) {
  if (!options.repro.empty()) return passes(parse_case(options.repro)) ? 0 : 1;
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(options.seconds);
  Index done = 0;
  for (; done < options.cases && Clock::now() < end; ++done)
    if (!passes(random_case(options.seed + static_cast<std::uint64_t>(done)))) return 1;
  std::cout << worst_report() << done << " cases passed, seeds " << options.seed << " to "
            << options.seed + static_cast<std::uint64_t>(done) - 1 << '\n';
  return 0;
}

}  // namespace
}  // namespace rapt::test

int main(int count, char** words) {
  try {
    return rapt::test::fuzz(rapt::test::parse(count, words));
  } catch (const std::exception& error) {
    std::cerr << "fuzz_attention: " << error.what() << '\n';
    return 2;
  }
}
