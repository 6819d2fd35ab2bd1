# rapt::mpi, ranks that mpirun starts: a library of its own, so that librapt never links MPI.
# ON asks for it, OFF leaves it out, AUTO builds it where MPI is installed.
set(RAPT_MPI AUTO CACHE STRING "Build rapt::mpi, for ranks on several machines: ON, OFF or AUTO")
set_property(CACHE RAPT_MPI PROPERTY STRINGS AUTO ON OFF)

if(RAPT_MPI STREQUAL AUTO AND (CMAKE_CROSSCOMPILING OR RAPT_FUZZ))
  set(RAPT_MPI OFF)
endif()
if(RAPT_MPI)
  # The C interface as C++ sees it; a project that uses rapt need not know C.
  set(MPI_CXX_SKIP_MPICXX TRUE)
  find_package(MPI QUIET COMPONENTS CXX)
  if(NOT MPI_CXX_FOUND)
    if(RAPT_MPI STREQUAL AUTO)
      rapt_leave_out("rapt::mpi" "scripts/setup --mpi")
      set(RAPT_MPI OFF)
    else()
      rapt_lack(RAPT_MPI "ranks over MPI" "libopenmpi-dev;openmpi-bin")
    endif()
  endif()
endif()
if(NOT RAPT_MPI)
  return()
endif()

file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/distributed/mpi/*.cpp)
rapt_join(sources mpi 12)
add_library(rapt_mpi ${sources})
add_library(rapt::mpi ALIAS rapt_mpi)
set_target_properties(rapt_mpi PROPERTIES
  EXPORT_NAME mpi
  POSITION_INDEPENDENT_CODE ON
  CXX_VISIBILITY_PRESET hidden
  VISIBILITY_INLINES_HIDDEN ON
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
target_compile_definitions(rapt_mpi PRIVATE RAPT_BUILDING)
target_include_directories(rapt_mpi PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
target_link_libraries(rapt_mpi PUBLIC rapt
  PRIVATE MPI::MPI_CXX $<BUILD_INTERFACE:rapt_options> $<BUILD_INTERFACE:rapt_warnings>
          $<BUILD_INTERFACE:rapt_strict_warnings>)
