# Compiler options, said once, for every target of this project.

add_library(rapt_options INTERFACE)
target_compile_features(rapt_options INTERFACE cxx_std_20)
# Contraction would make the numbers depend on the compiler; kernels ask for their multiply-adds by
# name. Nothing here reads errno after a math call.
target_compile_options(rapt_options INTERFACE -ffp-contract=off -fno-math-errno)
# A parent project that names no build type would get kernels thirty times slower.
target_compile_options(rapt_options INTERFACE $<$<CONFIG:>:-O3>)

add_library(rapt_warnings INTERFACE)
target_compile_options(rapt_warnings INTERFACE -Wall -Wextra)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(rapt_warnings INTERFACE -Wno-restrict)  # GCC bug 105651: joining strings
endif()

# Highway's headers do not survive these two, so src/kernels goes without.
add_library(rapt_strict_warnings INTERFACE)
target_compile_options(rapt_strict_warnings INTERFACE -Wconversion -Wsign-conversion)

if(RAPT_SANITIZE)
  target_compile_options(rapt_options INTERFACE -fsanitize=${RAPT_SANITIZE}
                         -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(rapt_options INTERFACE -fsanitize=${RAPT_SANITIZE})
endif()
