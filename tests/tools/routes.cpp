// Prints docs/internals/routes.md from the list that dispatch reads.

#include <cstdio>

#include "attention/dispatch.h"

int main() {
  std::puts(
      "# Routes\n\n"
      "A call takes the first route of this list that accepts it; `rapt explain` names it, and "
      "says why\n"
      "the routes before it were not taken. `src/attention/dispatch.cpp` is the list, and "
      "`rapt_routes` writes this\npage.\n\n"
      "| route | what it does |\n|---|---|");
  for (const rapt::detail::Route& route : rapt::detail::routes())
    std::printf("| `%s` | %s |\n", route.name, route.summary);
  return 0;
}
