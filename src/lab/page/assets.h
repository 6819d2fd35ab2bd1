#pragma once

#include <span>
#include <string_view>

namespace rapt::lab {

// Files that a page has inside, put into the library when it is built.
extern const std::string_view page_style, page_script;

/// A file of Vega under the name by which the others ask for it.
struct VegaPart {
  std::string_view name, text;
};
/// Empty if rapt was built without Vega.
std::span<const VegaPart> vega_parts();
/// Who wrote Vega and on which terms it may be passed on.
extern const std::string_view vega_copyright;

}  // namespace rapt::lab
