"""Real weights: sentence embeddings of MiniLM and text of SmolLM2, as Transformers computes them."""

import os
import pathlib
import random
import subprocess

import gguf
import numpy
import pytest
import torch
import transformers

import rapt
from rapt._find_model import find_model

TEXTS = int(os.environ.get("RAPT_ORACLE_TEXTS", "200"))
PROMPTS = int(os.environ.get("RAPT_ORACLE_PROMPTS", "8"))


COMMAND = pathlib.Path(os.environ.get(
    "RAPT_COMMAND", pathlib.Path(__file__).resolve().parents[3] / "build/release/bin/rapt"))


def found(name):
    try:
        return pathlib.Path(find_model(name))
    except RuntimeError as error:
        pytest.skip(str(error))


WORDS = """the of and to in attention engine kernel softmax gradient window token cache model quick brown fox
naïve café Straße Ångström façade jalapeño señor
привет мир внимание память быстро 你好 世界 注意力 机器学习 こんにちは 世界 トークン 안녕하세요 세계 주의
שלום עולם مرحبا بالعالم สวัสดี नमस्ते Γειά σου ⅷ ﬁnance １２３ 😀 👩‍🚀 🇩🇪 e\u0301 \u200b \u00ad
don't can't it's 3.14 1,000,000 http://x.y/z?a=b&c=d user@example.com C++20 -- ... !!! §4.2 #tag <tag/>""".split(" ")


def odd_text(random_, words):
    """Words of many languages, marks and characters drawn from all planes."""
    parts = [random_.choice(WORDS) for _ in range(words)]
    for _ in range(random_.randrange(3)):
        code = random_.choice([random_.randrange(1, 0x250), random_.randrange(0x2000, 0x2fff),
                               random_.randrange(0x1f300, 0x1f700), random_.randrange(0xac00, 0xd7a3)])
        parts.insert(random_.randrange(len(parts) + 1), chr(code))
    return random_.choice([" ", " ", "  ", "\t", "\n"]).join(parts)


def texts(count):
    random_ = random.Random(3)
    fixed = ["", " ", "a", "[MASK]", "[CLS] [SEP]", "x" * 300, "word " * 400]
    return fixed + [odd_text(random_, random_.choice([1, 3, 10, 30, 100, 300]))
                    for _ in range(count - len(fixed))]


def test_minilm_embeds_as_transformers_does():
    folder = found("minilm")
    ours = rapt.load(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    given = texts(TEXTS)
    with pytest.warns(UserWarning, match=r"truncated to the 256 tokens that the model reads; texts\[\d+\] has \d+"):
        mine = ours.embed(given)
    worst = 0.0
    for i, text in enumerate(given):
        ids = tokenizer(text, truncation=True, max_length=256, return_tensors="pt")
        if ids["input_ids"].shape[1] < 256:
            assert ours.tokenizer.encode(text, parse_special=True) == ids["input_ids"][0].tolist(), repr(text)
        with torch.no_grad():
            rows = theirs(**ids).last_hidden_state[0]
        expected = torch.nn.functional.normalize(rows.mean(0), dim=0).numpy()
        worst = max(worst, numpy.abs(mine[i] - expected).max())
    assert worst <= 1e-5, worst


@pytest.mark.filterwarnings("ignore:.*truncated to the 256 tokens")
@pytest.mark.parametrize("weights", ["f32", "bf16", "f16", "q8_0", "q4_0", "q4_1"])
def test_minilm_gives_the_same_bits_alone_and_in_company(weights):
    ours = rapt.load(found("minilm"), weight_type=weights)
    given = texts(40)
    together = ours.embed(given)
    for text, vector in zip(given, together):
        assert numpy.array_equal(ours.embed([text])[0], vector), repr(text)


@pytest.mark.skipif(not COMMAND.exists(), reason=f"{COMMAND} is not built")
def test_minilm_tells_what_it_does_not_write(tmp_path):
    with pytest.warns(UserWarning, match="save: not written, .*pooler.dense.weight"):
        rapt.load(found("minilm")).save(tmp_path / "copy")


def test_minilm_tells_what_it_does_not_read():
    def embed(text):
        return subprocess.run([COMMAND, "embed", found("minilm"), "-"], input=text, capture_output=True)

    cut = embed(b"short\n" + b"word " * 900)
    assert cut.returncode == 0 and len(cut.stdout.splitlines()) == 2
    assert cut.stderr == b"1 of the texts is truncated to the 256 tokens that the model reads; text 2 has 902\n"
    bad = embed(b"short\nna\xefve\n")
    assert (bad.returncode, bad.stdout) == (2, b"")
    assert b"embed: text 2 is no text: byte 2 is 0xef, expected UTF-8" in bad.stderr


PROMPT_LIST = [
    "The capital of France is", "Once upon a time", "def fibonacci(n):", "Water boils at",
    "In 1969,", "The largest planet in the solar system is", "To be or not to be,",
    "The quick brown fox", "import numpy as np\n", "A recipe for pancakes:\n1.",
    "Photosynthesis is the process", "The stock market", "Dear Sir or Madam,", "Q: What is 2+2?\nA:",
    "The mitochondria is", "Roses are red,", "How to train a puppy:", "SELECT name FROM",
    "The French Revolution began", "Gravity is", "Once there was a dragon", "The best way to learn",
    "An atom consists of", "My favourite colour is", "In the beginning", "The internet was invented",
    "Shakespeare wrote", "Newton's first law", "The Great Wall of China", "Coffee is made from",
    "for i in range(10):\n", "The moon orbits", "Bread is", "Antarctica is", "The human heart",
    "Python is a", "A triangle has", "The year is 2050.", "Mount Everest", "The Amazon rainforest",
    "Bees make", "Electricity flows", "The alphabet begins", "World War II ended", "Diamonds are",
    "Whales are", "The sun rises", "A haiku about rain:\n", "The first computer", "Music is"]


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory):
    """The same numbers twice: ours in f32, and written for Transformers."""
    ours = rapt.load(found("smollm2"), weight_type="f32")
    folder = tmp_path_factory.mktemp("smollm2") / "model"
    ours.save(folder)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return ours, theirs


@pytest.mark.parametrize("prompt", PROMPT_LIST[:PROMPTS])
def test_smollm2_writes_what_transformers_writes(prompt, smollm2):
    """Greedy text is the same wherever the best two logits are farther apart than rounding."""
    ours, theirs = smollm2
    start = ours.tokenizer.encode(prompt)
    written = ours.generate(start, max_new_tokens=24, temperature=0)
    with torch.no_grad():
        logits = theirs(torch.tensor([start + written])).logits[0]
    for i, id in enumerate(written):
        row = logits[len(start) + i - 1]
        best = row.topk(2)
        if id != best.indices[0].item():
            gap = (best.values[0] - row[id]).item()
            assert gap <= 1e-3, f"token {i}: {gap} below the best"


@pytest.mark.parametrize("cache", ["f32", "int8"])
def test_smollm2_writes_the_same_alone_and_in_company(smollm2, cache):
    ours, _ = smollm2
    asked = {"max_new_tokens": 8, "temperature": 0, "cache_type": cache, "details": True}
    for prompt, other in zip(PROMPT_LIST, ours.generate(PROMPT_LIST[:5], **asked)):
        one = ours.generate([prompt], **asked)[0]
        assert (one.ids, one.log_probability) == (other.ids, other.log_probability)


QUESTION = "Why is the sky blue?"


def test_smollm2_keeps_its_chat_template(smollm2):
    """Written as Transformers 5 writes it, and it renders there."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(smollm2[1].name_or_path)
    source = gguf.GGUFReader(found("smollm2")).fields["tokenizer.chat_template"].contents()
    assert tokenizer.chat_template == source
    question = [{"role": "user", "content": QUESTION}]
    text = tokenizer.apply_chat_template(question, add_generation_prompt=True, tokenize=False)
    assert text.endswith(f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n")
    ids = tokenizer.apply_chat_template(question, add_generation_prompt=True)["input_ids"]
    assert smollm2[0].tokenizer.encode(text, parse_special=True) == list(ids)


@pytest.mark.skipif(not COMMAND.exists(), reason=f"{COMMAND} is not built")
def test_smollm2_chats_as_its_source_does(smollm2):
    def answer(model):
        return subprocess.run([COMMAND, "generate", model, "--chat", QUESTION, "--max-new-tokens", "12",
                               "--temperature", "0", "--weight-type", "f32"],
                              capture_output=True, text=True, check=True).stdout

    said = answer(found("smollm2"))
    assert answer(smollm2[1].name_or_path) == said
    model = rapt.load(found("smollm2"), weight_type="f32")
    assert model.generate(QUESTION, chat=True, max_new_tokens=12, temperature=0) + "\n" == said
    ids = model.tokenizer.encode("The capital of France is")
    asked = {"max_new_tokens": 12, "temperature": 0, "context_size": len(ids) + 4}
    stopped = model.generate(ids, **asked)
    slid = model.generate(ids, overflow="slide", pinned=2, **asked)
    assert len(stopped) == 4 and len(slid) == 12 and slid[:4] == stopped


def test_smollm2_in_few_bits_stays_near(smollm2):
    """Activations are rounded to 8 bits beside weights of 4: the text's loss hardly moves."""
    ours, _ = smollm2
    few = rapt.load(found("smollm2"))
    ids = ours.tokenizer.encode(pathlib.Path(__file__).parents[3].joinpath("LICENSE").read_text())[:300]

    def loss(model):
        logits = torch.from_numpy(model.forward([ids], logits=True)).double()
        return torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:])).item()

    assert abs(loss(few) - loss(ours)) <= 0.02 * loss(ours)
