# Highway as `rapt_highway`: header paths, definitions and the library that picks targets at run time.

find_path(RAPT_HIGHWAY_INCLUDE hwy/highway.h)
find_library(RAPT_HIGHWAY_LIBRARY hwy)
mark_as_advanced(RAPT_HIGHWAY_INCLUDE RAPT_HIGHWAY_LIBRARY)
if(NOT RAPT_HIGHWAY_INCLUDE OR NOT RAPT_HIGHWAY_LIBRARY)
  message(FATAL_ERROR "rapt: Highway is missing: libhwy-dev, which scripts/setup installs")
endif()

add_library(rapt_highway INTERFACE)
target_include_directories(rapt_highway SYSTEM INTERFACE ${RAPT_HIGHWAY_INCLUDE})
target_link_libraries(rapt_highway INTERFACE ${RAPT_HIGHWAY_LIBRARY})
if(RAPT_HIGHWAY_LIBRARY MATCHES "\\.so$")
  target_compile_definitions(rapt_highway INTERFACE HWY_SHARED_DEFINE)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)  # of files that have nothing for some target
  target_compile_options(rapt_highway INTERFACE -Wno-pragma-clang-attribute)
endif()
