#pragma once

// Marks what a shared librapt exports; everything else stays hidden.
#if defined(RAPT_BUILDING)
#define RAPT_API __attribute__((visibility("default")))
#else
#define RAPT_API
#endif

namespace rapt {

namespace detail {
struct Access;  // how the library reaches the private half of its classes
}

}  // namespace rapt
