# Highway as `rapt_highway`: header paths, definitions and the library that picks targets at run time.

find_path(RAPT_HIGHWAY_INCLUDE hwy/highway.h REQUIRED)
find_library(RAPT_HIGHWAY_LIBRARY hwy REQUIRED)
mark_as_advanced(RAPT_HIGHWAY_INCLUDE RAPT_HIGHWAY_LIBRARY)

add_library(rapt_highway INTERFACE)
target_include_directories(rapt_highway SYSTEM INTERFACE ${RAPT_HIGHWAY_INCLUDE})
target_link_libraries(rapt_highway INTERFACE ${RAPT_HIGHWAY_LIBRARY})
if(RAPT_HIGHWAY_LIBRARY MATCHES "\\.so$")
  target_compile_definitions(rapt_highway INTERFACE HWY_SHARED_DEFINE)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)  # of files that have nothing for some target
  target_compile_options(rapt_highway INTERFACE -Wno-pragma-clang-attribute)
endif()
