# What models need beyond attention: JSON, TOML, Unicode, regular expressions, hashes. Without them
# rapt is the attention engine alone.
if(RAPT_MODELS)
  find_package(nlohmann_json QUIET)
  find_path(RAPT_TOML_INCLUDE toml++/toml.h)
  find_path(RAPT_XXHASH_INCLUDE xxhash.h)
  find_library(RAPT_UTF8PROC_LIBRARY utf8proc)
  find_library(RAPT_PCRE2_LIBRARY pcre2-8)
  mark_as_advanced(RAPT_TOML_INCLUDE RAPT_XXHASH_INCLUDE RAPT_UTF8PROC_LIBRARY RAPT_PCRE2_LIBRARY)
  set(missing)
  foreach(pair nlohmann_json_FOUND=nlohmann-json3-dev RAPT_TOML_INCLUDE=libtomlplusplus-dev
               RAPT_XXHASH_INCLUDE=libxxhash-dev RAPT_UTF8PROC_LIBRARY=libutf8proc-dev
               RAPT_PCRE2_LIBRARY=libpcre2-dev)
    string(REPLACE "=" ";" pair ${pair})
    list(GET pair 0 found)
    list(GET pair 1 package)
    if(NOT ${found})
      list(APPEND missing ${package})
    endif()
  endforeach()
  if(missing)
    rapt_lack(RAPT_MODELS models "${missing}")
  endif()
endif()

if(RAPT_MODELS)
  add_library(rapt_models INTERFACE)
  target_include_directories(rapt_models SYSTEM INTERFACE ${RAPT_TOML_INCLUDE}
                                                          ${RAPT_XXHASH_INCLUDE})
  target_compile_definitions(rapt_models INTERFACE PCRE2_CODE_UNIT_WIDTH=8 XXH_INLINE_ALL
                                                   RAPT_MODELS=1)
  target_link_libraries(rapt_models INTERFACE nlohmann_json::nlohmann_json
                                              ${RAPT_UTF8PROC_LIBRARY} ${RAPT_PCRE2_LIBRARY})
endif()
set(RAPT_MODELS ${RAPT_MODELS} PARENT_SCOPE)
