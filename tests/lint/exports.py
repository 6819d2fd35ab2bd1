#!/usr/bin/env python3
"""Every function that a public header declares and does not define can be linked to from outside.

usage: exports.py librapt.so

Compares include/rapt with the dynamic symbols of a shared library, which is built with hidden
visibility: a declaration without RAPT_API compiles, links into a static library, and is missing
here. Overloads are counted. Templates, inline functions and private members are left out.
"""

import collections
import pathlib
import re
import subprocess
import sys

HEADERS = pathlib.Path(__file__).resolve().parents[2] / "include" / "rapt"
SKIPPED = re.compile(r"^(using|typedef|friend|static_assert|template|extern|return|concept)\b")
NAME = re.compile(r"(operator\s*(?:\(\)|\[\]|[^\s\w(]+|\w+)|~?\w+)\s*\(")


def without_comments(text):
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '""', re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S))
    return re.sub(r"^\s*#(?:[^\n]*\\\n)*[^\n]*", " ", text, flags=re.M)


def without_templates(text):
    """The text without <...>, so that the first parenthesis is that of the parameters."""
    text = re.sub(r"operator\s*(<=>|<=|>=|<<|>>|<|>|->)", "operator_symbol", text)
    while (shorter := re.sub(r"<[^<>]*>", "", text)) != text:
        text = shorter
    return text


class Header:
    def __init__(self, text):
        self.parts = re.split(r"([;{}])", without_comments(text))
        self.at, self.declared = 0, []

    def skip_body(self):
        """Goes behind the brace that closes the one before."""
        depth = 1
        while depth:
            depth += {"{": 1, "}": -1}.get(self.parts[self.at], 0)
            self.at += 1

    def read(self, scope=(), kind="namespace", public=True):
        statement = ""
        while self.at < len(self.parts):
            part = self.parts[self.at]
            self.at += 1
            if part not in (";", "{", "}"):
                statement += part
                for access in re.findall(r"\b(public|protected|private)\s*:(?!:)", part):
                    public = access == "public"
                statement = re.sub(r"\b(public|protected|private)\s*:(?!:)", " ", statement)
            elif part == "}":
                return
            elif part == ";":
                if public:
                    self.note(" ".join(statement.split()), scope)
                statement = ""
            else:
                statement = self.open(" ".join(statement.split()), scope)

    def open(self, statement, scope):
        """What a brace opens; the text before it, if the statement continues after its end."""
        space = re.match(r"(?:inline )?namespace ([\w:]+)$", statement)
        kind = re.match(r"(?:class|struct|union) (?:alignas\(\w+\) )?(?:RAPT_API )?(\w+)", statement)
        if space:
            self.read((*scope, *space[1].split("::")))
        elif kind:
            self.read((*scope, kind[1]), "class", not statement.startswith("class"))
        else:  # a function's body, an enum, an initializer
            self.skip_body()
            return statement + " {}" if "=" in statement and "(" not in statement else \
                statement + " {}" if statement.count("(") > statement.count(")") else ""
        return ""

    def note(self, statement, scope):
        plain = without_templates(statement)
        name = NAME.search(plain)
        words = plain[: name.start()].split() if name else []
        if not name or SKIPPED.match(plain) or {"inline", "constexpr", "consteval"} & set(words):
            return
        if re.search(r"=\s*(default|delete|0)$", plain) or "=" in plain[: name.start()]:
            return
        if name[1] == "alignas" or "operator_symbol" in plain:
            return
        self.declared.append("::".join((*scope, name[1])))


def exported(library):
    done = subprocess.run(["nm", "-DC", "--defined-only", library], capture_output=True, text=True,
                          check=True)
    names = collections.Counter()
    for line in done.stdout.splitlines():
        symbol = without_templates(line.split(" ", 2)[2].replace("[abi:cxx11]", ""))
        if match := re.match(r"(?:[\w:]+ )?(rapt::[\w:~]*?(?:operator(?:\W+| \w+))?)\(", symbol):
            names[match[1]] += 1
    return names


def main(library):
    declared = collections.Counter()
    for path in sorted(HEADERS.rglob("*.h")):
        header = Header(path.read_text())
        header.read()
        declared.update(header.declared)
    found = exported(library)
    missing = [f"{name}: {count} declared, {found[name]} exported"
               for name, count in sorted(declared.items()) if found[name] < count]
    if len(declared) < 200:
        missing.append(f"only {len(declared)} declarations were found in {HEADERS}")
    print("\n".join(missing) or f"{sum(declared.values())} functions of {len(declared)} names are exported")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
