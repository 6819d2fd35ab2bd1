# Compiler options for every target of this project.

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
  # One instruction set: GCC takes ten minutes to instrument all of them, and they are one source.
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    target_compile_options(rapt_options INTERFACE -march=x86-64-v3 -maes -mpclmul)
  endif()
  target_compile_definitions(rapt_options INTERFACE HWY_COMPILE_ONLY_STATIC)
endif()

# Inputs are told apart by the branches they take, so what parses them is watched; the inner loops
# only have to be there.
if(RAPT_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "RAPT_FUZZ needs Clang, whose libFuzzer it is; preset fuzz asks for it")
  endif()
  set(RAPT_FUZZ_FLAGS -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  set(RAPT_FUZZ_FOLDERS base formats text model families train)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")  # one instruction set is enough here
    target_compile_options(rapt_options INTERFACE -march=x86-64-v3 -maes -mpclmul)
  endif()
endif()
