"""Two headers must not define a type of the same name: the linker would take one for both.

Usage: one_definition.py ROOT"""

import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2])
DEFINITION = re.compile(r"^(?:class|struct|enum class|enum) (?:RAPT_API |alignas\(\w+\) )?(\w+)\b(?!::|<)[^;]*?\{", re.M)
NAMESPACE = re.compile(r"^namespace (\w[\w:]*) \{|^HWY_BEFORE_NAMESPACE", re.M)


def definitions(path):
    text = path.read_text()
    namespaces = [m.group(1) or "per target" for m in NAMESPACE.finditer(text)]
    return {(namespaces[-1] if namespaces else "", m.group(1)) for m in DEFINITION.finditer(text)}


places = collections.defaultdict(list)
for folder in ("include", "src", "cli", "python/src", "tests"):
    for path in sorted((ROOT / folder).rglob("*.h")):
        for name in definitions(path):
            places[name].append(path.relative_to(ROOT))
twice = {name: paths for name, paths in places.items() if len(paths) > 1}
for (space, name), paths in twice.items():
    print(f"{space}::{name} is defined in {' and '.join(map(str, paths))}")
print(f"{len(places)} types, {len(twice)} defined twice")
sys.exit(1 if twice else 0)
