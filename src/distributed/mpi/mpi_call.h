#pragma once

#include <mpi.h>

#include <string>

#include "base/io/check_input.h"

namespace rapt::distributed {

inline std::string mpi_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return text;
}

/// Throws std::runtime_error with MPI's own text unless the call succeeded; the parts say what it
/// was about.
template <class... Parts>
void check_mpi(int code, const Parts&... about) {
  if (code != MPI_SUCCESS) [[unlikely]]
    detail::fail_input("mpi: ", about..., ": ", mpi_text(code));
}

}  // namespace rapt::distributed
