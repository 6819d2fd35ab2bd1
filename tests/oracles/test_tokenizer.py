"""Byte-level BPE against the tokenizers library: what is learnt, what is written, what is read."""

import json
import os
import pathlib
import random
import subprocess

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("RAPT_TOKENIZER_TOOL", ROOT / "build/release/bin/tokenizer_tool"))
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")

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


def library_trained(texts, entries, pattern=None):
    tokenizer = Tokenizer(models.BPE())
    if pattern:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=entries, min_frequency=2, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    paths = []
    for number, text in enumerate(corpus()):
        paths.append(folder / f"{number}.txt")
        paths[-1].write_bytes(text.encode())
    run("learn", 3000, folder / "tokenizer.json", *paths)
    return folder / "tokenizer.json"


def test_the_library_learns_the_same_merges(learnt):
    mine = json.loads(learnt.read_text())["model"]["merges"]
    theirs = json.loads(library_trained(corpus(), 3000 - 2).to_str())["model"]["merges"]
    assert len(mine) == 3000 - 258
    assert mine == [merge if isinstance(merge, list) else merge.split(" ") for merge in theirs]


def test_the_library_reads_what_we_write(learnt, tmp_path):
    run("bytes", tmp_path / "bytes.json")
    for path in (learnt, tmp_path / "bytes.json"):
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


def test_we_read_merges_in_the_old_spelling(learnt, tmp_path):
    file = json.loads(learnt.read_text())
    file["model"]["merges"] = [" ".join(merge) for merge in file["model"]["merges"]]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(file, ensure_ascii=True))
    text = odd_text(77)
    assert ours(tmp_path, path, text) == ours(tmp_path, learnt, text)
