#pragma once

#include <iostream>
#include <span>
#include <string>
#include <vector>

namespace rapt::test {

using Arguments = std::vector<std::string>;

/// The first word of a tool's command line, and what it does with the others.
struct Verb {
  const char* name;
  std::size_t words;
  void (*run)(const Arguments&);
};

/// All of main().
inline int run_tool(const char* tool, std::span<const Verb> verbs, int count, char** words) try {
  const Arguments given(words + 1, words + count);
  for (const Verb& verb : verbs)
    if (!given.empty() && given[0] == verb.name && given.size() == verb.words + 1) {
      verb.run({given.begin() + 1, given.end()});
      return 0;
    }
  std::cerr << tool << ": see the beginning of its source\n";
  return 2;
} catch (const std::exception& error) {
  std::cerr << tool << ": " << error.what() << '\n';
  return 1;
}

}  // namespace rapt::test
