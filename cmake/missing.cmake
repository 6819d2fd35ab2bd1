# What a package that is not there costs: an error at the top level, or one line at the end of
# configuring that says what is off and how to get it.

# Something is left out; `get` says how it would be built.
function(rapt_leave_out what get)
  set_property(GLOBAL APPEND PROPERTY RAPT_LEFT_OUT "${what} (${get})")
endfunction()

# Debian packages are missing for what an option builds. Sets the option OFF in a project that
# includes rapt; at the top level you have to say so.
function(rapt_lack option what packages)
  list(JOIN packages " " names)
  if(PROJECT_IS_TOP_LEVEL)
    message(FATAL_ERROR "rapt: ${what} need packages that are missing: ${names}\n"
                        "scripts/setup installs them; -D${option}=OFF builds rapt without.")
  endif()
  rapt_leave_out("${what}" "install ${names}")
  set(${option} OFF PARENT_SCOPE)
endfunction()

# The one line.
function(rapt_report_left_out)
  get_property(left_out GLOBAL PROPERTY RAPT_LEFT_OUT)
  if(left_out)
    list(JOIN left_out ", " text)
    message(STATUS "rapt: off: ${text}")
  endif()
endfunction()
