# Several sources per compiler run. Most of a compilation is headers and templates (JSON, CLI11,
# GoogleTest) that every source repeats: together they take a third of the time. Each joined file has
# the same name and text in every build folder, so that ccache serves other folders and clones.
option(RAPT_UNITY "Compile several sources at once: less work in all, more after each change" OFF)

# Replaces the sources in `list` by files that include `size` of them each, named after `name`.
function(rapt_join list name size)
  if(NOT RAPT_UNITY)
    return()
  endif()
  set(joined)
  set(text "")
  set(count 0)
  set(sources ${${list}})
  list(LENGTH sources left)
  foreach(source ${sources})
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${source})
    string(APPEND text "#include \"${path}\"\n")
    math(EXPR count "${count} + 1")
    math(EXPR left "${left} - 1")
    if(count EQUAL size OR left EQUAL 0)
      list(LENGTH joined number)
      set(file ${CMAKE_BINARY_DIR}/unity/${name}_${number}.cpp)
      file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
      list(APPEND joined ${file})
      set(text "")
      set(count 0)
    endif()
  endforeach()
  # Types of a source's own namespace stay its own: nothing includes a joined file.
  set_source_files_properties(${joined} PROPERTIES COMPILE_OPTIONS
                              -Wno-subobject-linkage)
  set(${list} ${joined} PARENT_SCOPE)
endfunction()
