#pragma once

#include <string_view>

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

/// The value of an enum by its name, as to_string(value) spells it. Throws std::invalid_argument
/// with the names there are.
template <class Enum>
Enum from_string(std::string_view name);

}  // namespace rapt
