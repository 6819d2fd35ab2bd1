# The page of `rapt heads` as strings in the library: see src/head_report/page_assets.h.
foreach(kind html css js)
  set(asset ${CMAKE_CURRENT_SOURCE_DIR}/head_report/page/heads.${kind})
  file(READ ${asset} heads_${kind})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${asset})
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/head_page_assets.cpp @ONLY CONTENT [[
#include "head_report/page_assets.h"

namespace rapt::detail {

const std::string_view heads_page_html = R"asset(@heads_html@)asset";
const std::string_view heads_page_css = R"asset(@heads_css@)asset";
const std::string_view heads_page_js = R"asset(@heads_js@)asset";

}  // namespace rapt::detail
]])
target_sources(rapt_head_report PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/head_page_assets.cpp)
