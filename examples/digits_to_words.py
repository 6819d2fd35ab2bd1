#!/usr/bin/env python3
"""Writes pairs of numbers and their English names, "1234<tab>one thousand two hundred thirty-four":
FOLDER/train.tsv to train on and FOLDER/test.tsv with other numbers to test with.

    python3 examples/digits_to_words.py FOLDER
"""

import argparse
import hashlib
import pathlib
import sys

SMALL = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
         "fifteen sixteen seventeen eighteen nineteen").split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
# Every word occurs below this, so these are always in the training data.
BASICS = 100


def words(number):
    if number < 20:
        return SMALL[number]
    if number < 100:
        ten, one = divmod(number, 10)
        return TENS[ten - 2] + (f"-{SMALL[one]}" if one else "")
    for size, name in ((1000, "thousand"), (100, "hundred")):
        if number >= size:
            many, rest = divmod(number, size)
            return f"{words(many)} {name}" + (f" {words(rest)}" if rest else "")


def shuffled(numbers, seed):
    """In an order that depends on the seed alone, not on the version of Python."""
    return sorted(numbers, key=lambda n: hashlib.sha256(f"{seed}:{n}".encode()).digest())


def write(path, numbers, swap):
    pairs = ((str(number), words(number)) for number in numbers)
    lines = (f"{word}\t{digits}\n" if swap else f"{digits}\t{word}\n" for digits, word in pairs)
    path.write_text("".join(lines), encoding="ascii")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--largest", type=int, default=9999, help="largest number (%(default)s)")
    parser.add_argument("--train", type=int, default=8000, help="pairs to train on (%(default)s)")
    parser.add_argument("--test", type=int, default=1000, help="pairs to test with (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--swap", action="store_true", help="words to digits")
    given = parser.parse_args()
    if not BASICS <= given.largest < 1_000_000:
        parser.error(f"--largest is {given.largest}, expected {BASICS} to 999999")
    if given.train < BASICS or given.test < 1 or given.train + given.test > given.largest + 1:
        parser.error(f"--train {given.train} and --test {given.test}, expected at least {BASICS} "
                     f"and 1 and together at most {given.largest + 1}")
    others = shuffled(range(BASICS, given.largest + 1), given.seed)
    test, train = others[:given.test], others[given.test:given.test + given.train - BASICS]
    given.folder.mkdir(parents=True, exist_ok=True)
    write(given.folder / "test.tsv", test, given.swap)
    train = shuffled([*range(BASICS), *train], f"{given.seed} train")
    write(given.folder / "train.tsv", train, given.swap)
    print(f"{len(train)} pairs in {given.folder / 'train.tsv'}, "
          f"{len(test)} others in {given.folder / 'test.tsv'}")


if __name__ == "__main__":
    sys.exit(main())
