"""Normalizers, added tokens and pre-tokenizers drawn at random, against the tokenizers library.

The model has a token for every character, and others for those that end a word: ids tell what text
reached it and where it was cut. RAPT_TOKENIZER_FULL=1 takes ten times as many.
"""

import os
import random

import pytest
import tokenizer_kinds
from test_tokenizer import TOOL, batch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models
from tokenizers import normalizers as N
from tokenizers import pre_tokenizers as P

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built")
COUNT = 1000 if os.environ.get("RAPT_TOKENIZER_FULL") else 100

LETTERS = [*"ab AÉé 中\n\t.1▁'", "\x07", "\u0301", "\u200b", "ﬁ", "\u00ad", "\ufeff", "ﷺ", "Ⅷ", "\u3000",
           "𝒜", "ſ", "が", "\u1680", "\u0000", "İ", "ß", "ﬃ", "½", "\u2028", "한", "\u0345"]
CUTS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]


@pytest.fixture(scope="module")
def table():
    pytest.importorskip("sentencepiece")
    return tokenizer_kinds.charsmap()


def normalizer(draw, table):
    flag = lambda share: draw.random() < share
    kinds = [N.NFC, N.NFD, N.NFKC, N.NFKD, N.Lowercase, N.StripAccents, N.Nmt,
             lambda: N.Strip(left=flag(.7), right=flag(.7)),
             lambda: N.BertNormalizer(clean_text=flag(.7), handle_chinese_chars=flag(.5),
                                      strip_accents=flag(.5), lowercase=flag(.5)),
             lambda: N.Prepend(draw.choice(["▁", "x", "xy"])),
             lambda: N.Replace(draw.choice([" ", "a", "ab", Regex(" +"), Regex("^a"), Regex("\\s")]),
                               draw.choice(["", "▁", "xy", "x", " "])),
             lambda: N.Precompiled(table), lambda: N.Precompiled(table)]
    return N.Sequence([draw.choice(kinds)() for _ in range(draw.randrange(4))])


def pre_tokenizer(draw):
    metaspace = lambda: P.Metaspace(prepend_scheme=draw.choice(["first", "first", "always", "never"]),
                                    split=draw.random() < .6)
    kinds = [metaspace, metaspace, metaspace, P.WhitespaceSplit, P.Whitespace, P.BertPreTokenizer,
             lambda: P.Punctuation(draw.choice(CUTS)),
             lambda: P.Digits(individual_digits=draw.random() < .5),
             lambda: P.CharDelimiterSplit("a"),
             lambda: P.Split(draw.choice(["a", " ", Regex("[ab]"), Regex("\\s+"), Regex("^a")]),
                             draw.choice(CUTS), invert=draw.random() < .2)]
    return P.Sequence([draw.choice(kinds)() for _ in range(draw.randrange(1, 4))])


def vocabulary(table):
    steps = [N.NFKC(), N.NFKD(), N.Precompiled(table), N.Sequence([N.NFKD(), N.Lowercase()])]
    letters = {*LETTERS, *"xy_<s>M", *(c for n in steps for x in LETTERS for c in n.normalize_str(x))}
    return {word: i for i, word in enumerate(
        ["<unk>", ""] + [c + end for c in sorted(letters) for end in ("", "$")])}


@pytest.mark.parametrize("seed", range(COUNT))
def test_drawn_tokenizers_give_the_ids_of_the_library(seed, table, tmp_path):
    draw = random.Random(seed)
    library = Tokenizer(models.BPE(vocabulary(table), [], unk_token="<unk>", end_of_word_suffix="$"))
    library.normalizer, library.pre_tokenizer = normalizer(draw, table), pre_tokenizer(draw)
    for name in ["<s>", "ab", "M", "\x07b"]:
        if draw.random() < .35:
            library.add_tokens([AddedToken(
                name, single_word=draw.random() < .2, lstrip=draw.random() < .3,
                rstrip=draw.random() < .3, normalized=draw.random() < .5, special=draw.random() < .3)])
    library.save(str(tmp_path / "tokenizer.json"))
    texts = [""] + ["".join(draw.choices(LETTERS + ["<s>", "ab", "M", " ", "a"], k=draw.choice(
        [1, 1, 2, 3, 4, 6, 10]))) for _ in range(60)]
    for text, (ids, _, _) in zip(texts, batch(tmp_path, tmp_path / "tokenizer.json", texts, "texts")):
        assert ids == library.encode(text).ids, ascii(text)


def test_tokens_without_letters_are_those_of_the_library(tmp_path):
    merges = [("a", "b"), ("", "a"), ("b", "")]
    for unknown in (None, ""):
        library = Tokenizer(models.BPE({"": 0, "a": 1, "b": 2, "ab": 3}, merges, unk_token=unknown))
        library.decoder = decoders.Fuse()
        library.save(str(tmp_path / "tokenizer.json"))
        texts = ["", "ab", "abba", "xaxb", "a x b", "bxa", "xx"]
        for text, (ids, _, back) in zip(texts, batch(tmp_path, tmp_path / "tokenizer.json", texts,
                                                     "texts")):
            assert ids == library.encode(text).ids, (unknown, text)
            assert back == library.decode(ids), (unknown, text)


def test_steps_after_byte_level_cut_the_letters_that_stand_for_bytes(tmp_path):
    draw = random.Random(3)
    library = Tokenizer(models.BPE({c: i for i, c in enumerate(sorted(P.ByteLevel.alphabet()))}, []))
    vocab = dict(library.get_vocab())
    pairs = [(a, b) for a in vocab for b in vocab if draw.random() < .05]
    library = Tokenizer(models.BPE(vocab | {a + b: len(vocab) + i for i, (a, b) in enumerate(pairs)},
                                   pairs))
    for after in (P.Digits(individual_digits=True), P.Punctuation("contiguous"),
                  P.Split(Regex("[0-9][0-9]"), "isolated"), P.Split("Ã", "removed")):
        library.pre_tokenizer = P.Sequence([P.ByteLevel(add_prefix_space=False), after])
        library.save(str(tmp_path / "tokenizer.json"))
        texts = tokenizer_kinds.random_texts(9, 300) + ["ü½ 1234", "м²³", "Ãé"]
        for text, (ids, _, _) in zip(texts, batch(tmp_path, tmp_path / "tokenizer.json", texts,
                                                  "texts")):
            assert ids == library.encode(text).ids, ascii(text)
