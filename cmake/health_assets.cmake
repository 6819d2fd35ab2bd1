# The page of `rapt inspect` as strings in the library: see src/head_report/health_assets.h.
foreach(kind html css js)
  set(asset ${CMAKE_CURRENT_SOURCE_DIR}/head_report/page/health.${kind})
  file(READ ${asset} health_${kind})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${asset})
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/health_assets.cpp @ONLY CONTENT [[
#include "head_report/health_assets.h"

namespace rapt::lab {

const std::string_view health_page_html = R"asset(@health_html@)asset";
const std::string_view health_page_css = R"asset(@health_css@)asset";
const std::string_view health_page_js = R"asset(@health_js@)asset";

}  // namespace rapt::lab
]])
target_sources(rapt_head_report PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/health_assets.cpp)
