# What models need beyond attention: JSON, TOML, Unicode, regular expressions, hashes. Without them
# rapt is the attention engine alone.
find_package(nlohmann_json QUIET)
find_path(RAPT_TOML_INCLUDE toml++/toml.h)
find_path(RAPT_XXHASH_INCLUDE xxhash.h)
find_library(RAPT_UTF8PROC_LIBRARY utf8proc)
find_library(RAPT_PCRE2_LIBRARY pcre2-8)
set(RAPT_MODELS OFF)
if(nlohmann_json_FOUND AND RAPT_TOML_INCLUDE AND RAPT_XXHASH_INCLUDE AND RAPT_UTF8PROC_LIBRARY
   AND RAPT_PCRE2_LIBRARY)
  set(RAPT_MODELS ON)
  add_library(rapt_models INTERFACE)
  target_include_directories(rapt_models SYSTEM INTERFACE ${RAPT_TOML_INCLUDE}
                                                          ${RAPT_XXHASH_INCLUDE})
  target_compile_definitions(rapt_models INTERFACE PCRE2_CODE_UNIT_WIDTH=8 XXH_INLINE_ALL
                                                   RAPT_MODELS=1)
  target_link_libraries(rapt_models INTERFACE nlohmann_json::nlohmann_json
                                              ${RAPT_UTF8PROC_LIBRARY} ${RAPT_PCRE2_LIBRARY})
else()
  message(STATUS "rapt: nlohmann-json, toml++, xxhash, utf8proc or pcre2 not found, models are switched off")
endif()
set(RAPT_MODELS ${RAPT_MODELS} PARENT_SCOPE)
