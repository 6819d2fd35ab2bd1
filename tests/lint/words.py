"""Identifiers and file names use the words of the field, and comments, messages and documentation plain current English:
fails on a private word or a dated phrase and names a better one. The library names no flag of the command.

    words.py ROOT
"""

import pathlib
import re
import subprocess
import sys

EVERYWHERE = {
    "room": "scratch", "rooms": "scratch", "desk": "scratch", "careful": "nonfinite", "carefully": "nonfinite",
    "thin": "decode", "standing": "validate", "scoring": "tile_logits, score", "lie": "layout", "speech": "printer",
    "crew": "workers", "quad": "int8", "quads": "int8", "trusted": "unchecked", "body": "impl", "bodies": "impl",
    "turn": "transpose, rotate", "turns": "ordered_section, rotations", "way": "route", "ways": "routes",
    "health": "heads, head_report", "lately": "window", "pause": "cancel_check", "learnt": "trained",
    "anew": "again",
}
# Words with an honest meaning elsewhere.
IN_FOLDERS = {
    "gather": ("accumulate_values", ("src/kernels/", "src/attention/")),
    "owner": ("batch_head", ("src/attention/",)),
    "owners": ("batch_heads", ("src/attention/",)),
    "slot": ("sorted index, place", ("src/attention/lsh/",)),
    "few": ("short_context", ("src/kernels/decode/", "src/attention/")),
    "entries": ("vocab_size", ("include/", "src/text/", "src/generate/", "cli/", "python/")),
    "vocabulary": ("vocab_size", ("include/",)),
    "frame": ("add_special_tokens", ("include/", "src/text/", "cli/", "python/")),
    "asked": ("position, wanted", ("src/attention/pattern/", "src/attention/plan/")),
}
# Tests and scripts read bodies of functions, models and pages.
ONLY_IN_PRODUCT = {"body", "bodies"}
# In comments, messages and documentation.
PHRASES = {
    r"whoever|whosoever": "the thread, the caller, the next process",
    r"nobody|somebody|everyone": "no query, no thread, every query",
    r"anew": "again",
    r"learnt": "learned, trained",
    r"goes on|go on|went on": "continues, resumes",
    r"lets? go of|lets? go": "releases, drops",
    r"of (?:yours|ours|theirs)": "your, our, their",
    r"for good": "permanently",
    r"in spite of": "despite",
    r"trades? places": "exchanges",
    r"lies?|lay": "is, is stored",
    r"be it": "whether it is",
    r"stands? at|standing at|stands? left": "is at, precedes",
    r"(?:first|second|third)(?:[- ]level)? cache": "L1, L2, L3",
    r"asked about": "given",
    r"said once": "reported once",
}
PHRASE = re.compile("|".join(rf"\b(?:{phrase})\b" for phrase in PHRASES), re.IGNORECASE)
PROSE = (".h", ".cpp", ".py", ".md", ".js", ".cmake", "CMakeLists.txt")
OLD_NAMES = {"tests/lint/words.py", "CHANGELOG.md"}  # lists of them
# Names of others: the instruction PAUSE, HTML, the chat template of Gemma, what a GPU framework calls its frames.
ALLOWED = {"__builtin_ia32_pause", "pause_cpu", "start_of_turn", "end_of_turn", "begin_of_turn", "body_html",
           "DataFrame", "lexically_normal", "AutoModelForSpeechSeq2Seq", "GraniteSpeechConfig"}


def words_of(identifier):
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)]


def code_of(path, text):
    """Without comments and texts."""
    if path.endswith(".py"):
        text = re.sub(r'"""(?:.|\n)*?"""', '""', text)
        text = re.sub(r"#.*", "", text)
    else:
        text = re.sub(r'R"(\w*)\((?:.|\n)*?\)\1"', '""', text)
        text = re.sub(r"//.*", "", text)
    return re.sub(r"'(?:\\.|[^'\\\n])'|\"(?:\\.|[^\"\\\n])*\"", '""', text)


def flags_in(path, text):
    """Flags of the command in texts of the library."""
    for literal in re.findall(r'"((?:\\.|[^"\\\n])*)"', re.sub(r"//.*", "", text)):
        for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", literal):
            yield f"{path}: {flag} in a text, expected the name of an option"


def instead_of(word, path):
    if word in ONLY_IN_PRODUCT and path.startswith(("tests/", "bench/", "scripts/")):
        return None
    if word in EVERYWHERE:
        return EVERYWHERE[word]
    public, folders = IN_FOLDERS.get(word, (None, ()))
    return public if path.startswith(folders) else None


def private_words(path, identifiers):
    for identifier in sorted(identifiers - ALLOWED):
        for word in words_of(identifier):
            public = instead_of(word, path)
            if public:
                yield f"{path}: {identifier}: \"{word}\", expected one of: {public}"


def dated_phrases(path, text):
    """Also those that a line break of a comment divides."""
    text = re.sub(r"[ \t]*\n[ \t]*(?:///?|#)?[ \t]*", lambda gap: "\n" if "\n" in gap.group() else " ", text)
    for match in PHRASE.finditer(text.replace("\n", " ")):
        line = text.count("\n", 0, match.start()) + 1
        better = next(public for phrase, public in PHRASES.items()
                      if re.fullmatch(phrase, match.group(), re.IGNORECASE))
        yield f"{path}:{line}: \"{match.group()}\", expected for example: {better}"


def main(root):
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "include", "src", "cli",
                             "python", "examples", "tests", "bench", "scripts", "docs", "cmake", "*.md"],
                            cwd=root, capture_output=True, text=True, check=True).stdout.split()
    found = []
    for path in listed:
        found += private_words(path, {path.rsplit("/", 1)[-1].split(".")[0]})
        if (path.endswith(PROSE) or path.startswith("scripts/")) and path not in OLD_NAMES:
            with open(f"{root}/{path}", encoding="utf-8") as file:
                found += dated_phrases(path, file.read())
        if path.endswith((".h", ".cpp", ".py")):
            with open(f"{root}/{path}", encoding="utf-8") as file:
                text = file.read()
            found += private_words(path, set(re.findall(r"[A-Za-z_]\w*", code_of(path, text))))
            if path.startswith(("src/", "include/")):
                found += flags_in(path, text)
    print("\n".join(found) or "no private words")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]))
