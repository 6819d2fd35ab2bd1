// Feeds every parser of tests/fuzz with inputs that are a little different from good ones, where
// there is no libFuzzer. Whatever they say, a parser answers or throws std::runtime_error, and
// takes no memory out of proportion to the input.
//
//   fuzz_formats [--seconds S] [--seed K]     at least 10,000 inputs for each parser
//
#include <chrono>
#include <cstring>
#include <iostream>
#include <random>

#include "fuzz/target.h"
#include "rapt/tensor.h"
#include "support/heap_peak.h"

namespace rapt::fuzz {
namespace {

/// Bytes changed, parts cut out or doubled, and words and numbers put in that readers stumble over.
class Mutator {
 public:
  Mutator(std::uint64_t seed, const std::vector<std::string>& words)
      : random_(seed), words_(words) {}

  std::string mutated(std::string text) {
    for (std::size_t times = 1 + below(4); times > 0; --times) mutate(text);
    return text;
  }

 private:
  std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }
  const std::string& word() {
    static const std::string none;
    return words_.empty() ? none : words_[below(words_.size())];
  }
  void mutate(std::string& text) {
    const std::size_t at = below(text.size() + 1), length = below(40);
    switch (below(8)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(at, length));
        break;
      case 3:
        text.insert(at, word());
        break;
      case 4:
        replace_value(text);
        break;
      case 5:
        put_number(text, at);
        break;
      case 6:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ 1 << below(8));
        break;
      default:
        if (below(8) == 0) text.resize(at);
    }
  }
  /// A word in the place of a number or a name of JSON.
  void replace_value(std::string& text) {
    const std::size_t at = text.find_first_of("0123456789\"", below(text.size() + 1));
    if (at == std::string::npos) return;
    const std::size_t end = text.find_first_of(",:]}", at);
    text.replace(at, end == std::string::npos ? end : end - at, word());
  }
  void put_number(std::string& text, std::size_t at) {
    const std::uint64_t base = std::uint64_t{1} << below(64);
    const std::uint64_t number = below(3) == 0 ? below(40) : base - below(3);
    const std::size_t size = std::size_t{1} << below(4);
    if (at + size <= text.size()) std::memcpy(text.data() + at, &number, size);
  }

  std::mt19937_64 random_;
  const std::vector<std::string>& words_;
};

/// A parser on its way.
struct Course {
  const Target* target;
  std::vector<std::string> seeds = target->seeds(), words = target->words();
  long long floor_bytes = 0;  // what any input takes
  Index accepted = 0, refused = 0;

  explicit Course(const Target* of) : target(of) {
    for (const std::string& seed : seeds) {
      try {
        target->open(seed)();  // tables that are made once
      } catch (const std::runtime_error&) {
        // refused later: what it takes to open it counts all the same
      }
      const test::HeapPeak peak;
      target->open(seed);
      floor_bytes = std::max(floor_bytes, peak.bytes() + (1 << 16) + target->extra_bytes);
    }
  }
  void try_one(std::uint64_t number) {
    const std::string input = Mutator(number, words).mutated(seeds[number % seeds.size()]);
    const test::HeapPeak peak;
    try {
      const std::function<void()> rest = target->open(input);
      check_memory(peak, input);
      rest();
      ++accepted;
    } catch (const std::runtime_error&) {
      check_memory(peak, input);
      ++refused;
    }
  }
  void check_memory(const test::HeapPeak& peak, const std::string& input) const {
    expect(peak.bytes() <= 4 * static_cast<long long>(input.size()) + floor_bytes,
           "more memory than four times the input");
  }
};

int fuzz(double seconds, std::uint64_t seed) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  std::vector<Course> courses;
  for (const Target* target : all_targets()) courses.emplace_back(target);
  for (std::uint64_t done = 0; done < 10'000 || Clock::now() < end; ++done)
    for (Course& course : courses) {
      try {
        course.try_one(seed + done);
      } catch (const std::exception& error) {
        std::cerr << course.target->name << ", seed " << seed + done << ": " << error.what()
                  << '\n';
        return 1;
      }
    }
  for (const Course& course : courses) {
    std::cout << course.target->name << ": " << course.accepted << " accepted, " << course.refused
              << " refused\n";
    const bool both = course.accepted > 100 && course.refused > 500;
    expect(course.target->takes_all ? course.refused == 0 : both, "inputs of the wrong sort");
  }
  return 0;
}

}  // namespace
}  // namespace rapt::fuzz

int main(int count, char** words) try {
  double seconds = 10;
  std::uint64_t seed = 1;
  for (int i = 1; i + 1 < count; i += 2) {
    if (std::string(words[i]) == "--seconds") seconds = std::stod(words[i + 1]);
    if (std::string(words[i]) == "--seed") seed = std::stoull(words[i + 1]);
  }
  return rapt::fuzz::fuzz(seconds, seed);
} catch (const std::exception& error) {
  std::cerr << "fuzz_formats: " << error.what() << '\n';
  return 2;
}
