#pragma once

#include <string_view>

namespace rapt::lab {

// Files of src/lab/page, put here by the build. The page has a place for each of style, script
// and data.
extern const std::string_view health_page_html, health_page_css, health_page_js;

}  // namespace rapt::lab
