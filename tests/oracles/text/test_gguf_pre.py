"""Byte-level GGUF tokenizers by the name of their pre-tokenizer, against the tokenizers library with
the pre-tokenizer that the original tokenizer.json of the family has."""

import os
import pathlib
import subprocess

import pytest
import tokenizer_kinds
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[3]
RAPT = pathlib.Path(os.environ.get("RAPT_COMMAND", ROOT / "build/release/bin/rapt"))
pytestmark = pytest.mark.skipif(not RAPT.exists(), reason=f"{RAPT} is not built")


def split(expression):
    return pre_tokenizers.Split(Regex(expression), "isolated")


def byte_level(cut):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cut)


def cased_letters():
    """Of Latin, Greek, Cyrillic and the other scripts with two cases that DeepSeek lists."""
    ends = [0x41, 0x5A, 0x61, 0x7A, 0xB5, 0xB5, 0xC0, 0xD6, 0xD8, 0xF6, 0xF8, 0x1BA, 0x1BC, 0x1BF,
            0x1C4, 0x293, 0x295, 0x2AF, 0x370, 0x373, 0x376, 0x377, 0x37B, 0x37D, 0x37F, 0x37F,
            0x386, 0x386, 0x388, 0x38A, 0x38C, 0x38C, 0x38E, 0x3A1, 0x3A3, 0x3F5, 0x3F7, 0x481,
            0x48A, 0x52F, 0x531, 0x556, 0x10A0, 0x10C5, 0x13A0, 0x13F5, 0x13F8, 0x13FD, 0x1C90,
            0x1CBA, 0x1CBD, 0x1CBF, 0x1D00, 0x1D2B, 0x1D6B, 0x1D77, 0x1D79, 0x1D9A, 0x1E00, 0x1F15,
            0x1F18, 0x1F1D, 0x1F20, 0x1F45, 0x1F48, 0x1F4D, 0x1F50, 0x1F57, 0x1F59, 0x1F59, 0x1F5B,
            0x1F5B, 0x1F5D, 0x1F5D, 0x1F5F, 0x1F7D, 0x1F80, 0x1FB4, 0x1FB6, 0x1FBC, 0x1FBE, 0x1FBE,
            0x1FC2, 0x1FC4, 0x1FC6, 0x1FCC, 0x1FD0, 0x1FD3, 0x1FD6, 0x1FDB, 0x1FE0, 0x1FEC, 0x1FF2,
            0x1FF4, 0x1FF6, 0x1FFC, 0x2102, 0x2102, 0x2107, 0x2107, 0x210A, 0x2113, 0x2115, 0x2115,
            0x2119, 0x211D, 0x2124, 0x2124, 0x2126, 0x2126, 0x2128, 0x2128, 0x212A, 0x212D, 0x212F,
            0x2134, 0x2139, 0x2139, 0x213C, 0x213F, 0x2145, 0x2149, 0x214E, 0x214E, 0x2183, 0x2184,
            0x2C00, 0x2C7B, 0x2C7E, 0x2CE4, 0x2CEB, 0x2CEE, 0x2CF2, 0x2CF3, 0xA640, 0xA66D, 0xA680,
            0xA69B, 0xA722, 0xA76F, 0xA771, 0xA787, 0xA78B, 0xA78E, 0xAB70, 0xABBF, 0xFB00, 0xFB06,
            0xFB13, 0xFB17, 0xFF21, 0xFF3A, 0xFF41, 0xFF5A, 0x10400, 0x1044F, 0x104B0, 0x104D3,
            0x104D8, 0x104FB, 0x10C80, 0x10CB2, 0x10CC0, 0x10CF2, 0x118A0, 0x118DF, 0x1E900, 0x1E943]
    return "".join(chr(a) if a == b else f"{chr(a)}-{chr(b)}" for a, b in zip(ends[::2], ends[1::2]))


CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
WORDS = "[^\\r\\n\\p{L}\\p{N}]?"
UPPER, LOWER = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]", "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
ENDS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"
DIGITS = [pre_tokenizers.Digits(individual_digits=True), byte_level(True)]


def cased(end):
    return f"{WORDS}{UPPER}*{LOWER}+{end}|{WORDS}{UPPER}+{LOWER}*{end}"


KINDS = {
    "falcon": [pre_tokenizers.Punctuation("contiguous"), byte_level(True),
               pre_tokenizers.Digits(individual_digits=False), split("[0-9][0-9][0-9]")],
    "deepseek-llm": [split("[\r\n]"), split("\\s?[" + cased_letters() + "]+"),
                     split("\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"),
                     split("\\s+$"), split(CJK), pre_tokenizers.Digits(individual_digits=True),
                     byte_level(False)],
    "deepseek-coder": [split("[\r\n]"), split("\\s?\\p{L}+"), split("\\s?\\p{P}+"), split(CJK),
                       pre_tokenizers.Digits(individual_digits=True), byte_level(False)],
    "deepseek-v3": [split("\\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
                    split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}"
                          "\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*" + SPACES),
                    byte_level(False)],
    "mpt": [byte_level(True)],
    "olmo": [byte_level(True)],
    "starcoder": DIGITS,
    "refact": DIGITS,
    "command-r": DIGITS,
    "llama-bpe": [split(tokenizer_kinds.LLAMA3), byte_level(False)],
    "qwen2": [split(tokenizer_kinds.QWEN2), byte_level(False)],
    "qwen35": [split(ENDS + "|" + WORDS + "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*"
                     + SPACES), byte_level(False)],
    "bloom": [split(BLOOM), byte_level(False)],
    "viking": [split(BLOOM), pre_tokenizers.Digits(individual_digits=True), byte_level(False)],
    "tekken": [split(cased("") + "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" + SPACES),
               byte_level(False)],
    "gpt-4o": [split(cased(ENDS + "?") + "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" + SPACES),
               byte_level(False)],
    "seed-coder": [split(ENDS + "|" + WORDS + "\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+" + SPACES),
                   byte_level(False)],
}
COMPOSED = ("mpt", "olmo", "command-r", "qwen2", "qwen35")
WHOLE_WORDS = ("llama-bpe", "tekken")


@pytest.fixture(scope="module")
def messages():
    return tokenizer_kinds.corpus(300_000)


@pytest.fixture(scope="module")
def trained(messages):
    """Merges across everything: cuts decide alone."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split("\\S+\\s*\\S*"), byte_level(False)])
    texts = messages[::3] + tokenizer_kinds.random_texts(11, 3000) + [
        f"{i} {i * 7919}{'. !?'[i % 4]}\n\n  'LL've {i:05}ü½²³м" for i in range(3000)]
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=6000, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    import json
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return tokens, [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]


@pytest.mark.parametrize("pre", KINDS)
def test_every_name_cuts_as_the_original_tokenizer(pre, messages, trained, tmp_path):
    gguf = pytest.importorskip("gguf")
    tokens, merges = trained
    library = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges,
                                   ignore_merges=pre in WHOLE_WORDS))
    library.pre_tokenizer = pre_tokenizers.Sequence(KINDS[pre])
    if pre in COMPOSED:
        library.normalizer = normalizers.NFC()
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    # Some at once, as lines are not cut apart; in several texts, so that a fault is found.
    texts = messages[::10] + tokenizer_kinds.random_texts(7, 3000) + [
        f"{i * 37}ü {i}½x² м  \r\n\n\tIt'S {'.' * (i % 4)}${i}" for i in range(300)]
    for first in range(0, len(texts), 500):
        text = " \n".join(texts[first:first + 500])
        done = subprocess.run([RAPT, "tokenize", tmp_path / "model.gguf", "--no-add-special-tokens"],
                              input=text.encode(), capture_output=True, check=True)
        assert [int(word) for word in done.stdout.split()] == library.encode(text).ids
