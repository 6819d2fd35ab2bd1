#pragma once

#include <string_view>

namespace rapt::detail {

// Files of src/head_report/page, embedded by the build. The page has a place for each of style,
// script and data.
extern const std::string_view heads_page_html, heads_page_css, heads_page_js;

}  // namespace rapt::detail
