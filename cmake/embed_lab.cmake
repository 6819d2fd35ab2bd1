# Writes a C++ file (OUT) with the texts that lab/page/assets.h declares: cmake -DOUT= -DPAGE=
# [-DVEGA= -DCOPYRIGHT=] -P
set(parts util canvas time format loader statistics expression event-selector dataflow scale
          scenegraph selection functions runtime parser transforms view-transforms encode view
          interpreter)

function(read_text path variable)
  file(READ ${path} text)
  # Maps of the sources are not there; a browser would look for them.
  string(REGEX REPLACE "//# sourceMappingURL=[^\n]*\n?" "" text "${text}")
  set(${variable} "R\"rapt_file(${text})rapt_file\"" PARENT_SCOPE)
endfunction()

read_text(${PAGE}/style.css style)
read_text(${PAGE}/script.js script)
file(WRITE ${OUT} "#include \"lab/page/assets.h\"\n\n#include <array>\n\nnamespace rapt::lab {\n")
file(APPEND ${OUT} "const std::string_view page_style = ${style};\n")
file(APPEND ${OUT} "const std::string_view page_script = ${script};\n")
set(count 0)
set(list "")
set(copyright "\"\"")
if(VEGA)
  foreach(part ${parts})
    read_text(${VEGA}/vega-${part}.min.js text)
    # The file's name lacks an s that the others ask for.
    string(REGEX REPLACE "^selection$" "selections" name ${part})
    string(APPEND list "    VegaPart{\"vega-${name}\", ${text}},\n")
    math(EXPR count "${count} + 1")
  endforeach()
  read_text(${COPYRIGHT} copyright)
endif()
file(APPEND ${OUT} "const std::string_view vega_copyright = ${copyright};\n")
file(APPEND ${OUT} "std::span<const VegaPart> vega_parts() {\n")
file(APPEND ${OUT} "  static const std::array<VegaPart, ${count}> parts = {\n${list}  };\n")
file(APPEND ${OUT} "  return parts;\n}\n}  // namespace rapt::lab\n")
