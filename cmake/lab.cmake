# What a page of the lab has inside: its style, its script, and Vega from Debian's libjs-vega. Without
# Vega pages show tables instead of pictures.
find_path(RAPT_VEGA vega-view.min.js PATHS /usr/share/javascript/vega NO_DEFAULT_PATH)
mark_as_advanced(RAPT_VEGA)
set(lab_copyright /usr/share/doc/libjs-vega/copyright)  # goes along with Vega
if(RAPT_VEGA AND EXISTS ${lab_copyright})
  set(lab_vega -DVEGA=${RAPT_VEGA} -DCOPYRIGHT=${lab_copyright})
else()
  set(lab_vega "")
  rapt_leave_out("pictures of rapt lab" "install libjs-vega, or run scripts/setup")
endif()

set(lab_assets ${CMAKE_CURRENT_BINARY_DIR}/lab_assets.cpp)
set(lab_embed ${PROJECT_SOURCE_DIR}/cmake/embed_lab.cmake)
set(lab_page ${CMAKE_CURRENT_SOURCE_DIR}/lab/page)
add_custom_command(OUTPUT ${lab_assets}
  COMMAND ${CMAKE_COMMAND} -DOUT=${lab_assets} -DPAGE=${lab_page} ${lab_vega} -P ${lab_embed}
  DEPENDS ${lab_embed} ${lab_page}/style.css ${lab_page}/script.js
  COMMENT "Embedding the lab's page" VERBATIM)
target_sources(rapt_lab PRIVATE ${lab_assets})
