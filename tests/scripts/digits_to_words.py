#!/usr/bin/env python3
"""The pairs of examples/digits_to_words.py: right, held-out numbers apart, same seed same files."""

import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "digits_to_words.py"
VALUES = {word: value for value, word in enumerate(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen".split())}
VALUES |= {word: 20 + 10 * i for i, word in enumerate(
    "twenty thirty forty fifty sixty seventy eighty ninety".split())}


def value_of(text):
    """Adds words up from the left, which shares nothing with how the script divides."""
    total = here = 0
    for word in text.replace("-", " ").split(" "):
        if word == "hundred":
            here *= 100
        elif word == "thousand":
            total, here = total + here * 1000, 0
        else:
            here += VALUES[word]
    return total + here


def run(folder, *arguments):
    return subprocess.run([sys.executable, SCRIPT, folder, *arguments], capture_output=True,
                          text=True)


def files(folder, *arguments):
    result = run(folder, *arguments)
    assert result.returncode == 0, result.stderr
    return [(pathlib.Path(folder) / name).read_text() for name in ("train.tsv", "test.tsv")]


def pairs(text):
    assert text.endswith("\n")
    return [tuple(line.split("\t")) for line in text.splitlines()]


def main():
    with tempfile.TemporaryDirectory() as folder:
        few = files(folder)
        train, test = map(pairs, few)
        assert (len(train), len(test)) == (8000, 1000)
        numbers = [{int(digits) for digits, _ in side} for side in (train, test)]
        assert (len(numbers[0]), len(numbers[1])) == (8000, 1000) and not numbers[0] & numbers[1]
        assert set(range(100)) <= numbers[0] and max(numbers[0] | numbers[1]) <= 9999
        for digits, name in train + test:
            assert value_of(name) == int(digits), (digits, name)
        assert files(folder) == few and files(folder, "--seed", "2") != few
        many = pairs(files(folder, "--largest", "999999", "--train", "3000")[0])
        assert all(value_of(name) == int(digits) for digits, name in many)
        assert max(int(digits) for digits, _ in many) > 900_000
        assert ("70", "seventy") in train and ("0", "zero") in train
        swapped = pairs(files(folder, "--swap")[1])
        assert [(b, a) for a, b in swapped] == test
        for wrong in (["--largest", "99"], ["--train", "9500"], ["--train", "3"], ["--test", "0"]):
            result = run(folder, *wrong)
            assert result.returncode == 2 and "expected" in result.stderr, wrong
    print("pairs are right")


main()
