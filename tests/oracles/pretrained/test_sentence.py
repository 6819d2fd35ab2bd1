"""Folders of sentence-transformers with dense layers: the definition of its modules in torch, behind tiny
encoders of Transformers."""

import json

import numpy
import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file

import rapt
from families import BODIES, VOCABULARY, WIDTH, noisy

WORDS = ["[PAD]", "[UNK]", "</s>", *(chr(ord("a") + i) for i in range(26))]
TEXTS = ["a b c", "z", "q w e r t y u i o p a s d f g h j k l", "a b c d e"]


def write_tokenizer(folder):
    """Letters are words, and </s> ends a text, as T5 has it."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 2)])
    tokenizer.save(str(folder / "tokenizer.json"))
    assert len(WORDS) <= VOCABULARY


def dense(folder, generator, into, out, bias, activation):
    """What sentence_transformers.models.Dense saves, and what it computes."""
    linear = torch.nn.Linear(into, out, bias=bias)
    with torch.no_grad():
        for parameter in linear.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    folder.mkdir()
    name = {torch.nn.Identity: "torch.nn.modules.linear.Identity",
            torch.nn.Tanh: "torch.nn.modules.activation.Tanh"}[activation]
    (folder / "config.json").write_text(json.dumps(
        {"in_features": into, "out_features": out, "bias": bias, "activation_function": name}))
    save_file({f"linear.{key}": value.contiguous() for key, value in linear.state_dict().items()},
              folder / "model.safetensors")
    linear = linear.double()
    return lambda x: activation()(linear(x))


def write_folder(folder, model, mode, layers, normalized):
    """layers: of dense layers (out, bias, activation). Gives what becomes of pooled rows."""
    model.save_pretrained(folder)
    write_tokenizer(folder)
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(json.dumps(
        {"word_embedding_dimension": WIDTH, "pooling_mode_cls_token": mode == "cls",
         "pooling_mode_mean_tokens": mode == "mean", "pooling_mode_max_tokens": False}))
    generator, steps, width = torch.Generator().manual_seed(7), [], WIDTH
    for out, bias, activation in layers:
        place = f"{len(modules)}_Dense"
        modules.append((place, "Dense"))
        steps.append(dense(folder / place, generator, width, out, bias, activation))
        width = out
    if normalized:
        modules.append((f"{len(modules)}_Normalize", "Normalize"))
        steps.append(lambda x: torch.nn.functional.normalize(x, p=2, dim=-1))
    (folder / "modules.json").write_text(json.dumps(
        [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
         for i, (path, kind) in enumerate(modules)]))
    return steps


def vector(model, tokenizer, text, mode, steps):
    ids = torch.tensor([tokenizer.encode(text)])
    with torch.no_grad():
        rows = model(ids).last_hidden_state[0].double()
        x = rows[0] if mode == "cls" else rows.mean(0)
        for step in steps:
            x = step(x)
    return x.numpy()


IDENTITY, TANH = torch.nn.Identity, torch.nn.Tanh
CASES = {
    "sentence-t5": ("t5-encoder-gated", "mean", [(32, False, IDENTITY)], True),
    "labse": ("bert", "cls", [(WIDTH, True, TANH)], True),
    "distiluse": ("bert", "mean", [(20, True, TANH)], False),
    "two": ("t5-encoder", "mean", [(96, False, IDENTITY), (24, True, TANH)], True),
}


@pytest.mark.parametrize("case", CASES)
def test_dense_layers_embed_as_defined(case, tmp_path):
    name, mode, layers, normalized = CASES[case]
    model = noisy(BODIES[name])
    steps = write_folder(tmp_path / "m", model, mode, layers, normalized)
    ours = rapt.load(tmp_path / "m")
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "m/tokenizer.json"))
    model = model.double()
    expected = numpy.stack([vector(model, ours.tokenizer, text, mode, steps) for text in TEXTS])
    assert ours.tokenizer.encode(TEXTS[0]) == tokenizer.encode(TEXTS[0]).ids
    mine = ours.embed(TEXTS)
    assert mine.shape == (len(TEXTS), layers[-1][0])
    # Sums of up to 96 products of size 1, of rows with the error of a tiny model's layers.
    assert numpy.abs(mine - expected).max() <= 1e-5 * max(1, numpy.abs(expected).max())
    ours.save(tmp_path / "again")
    again = rapt.load(tmp_path / "again")
    numpy.testing.assert_array_equal(again.embed(TEXTS), mine)
    for place in sorted(path.parent.name for path in (tmp_path / "m").glob("*_Dense/config.json")):
        theirs, written = (json.loads((tmp_path / f / place / "config.json").read_text()) for f in ("m", "again"))
        assert theirs == written
        a, b = (load_file(tmp_path / f / place / "model.safetensors") for f in ("m", "again"))
        assert a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)
    modules = [json.loads((tmp_path / f / "modules.json").read_text()) for f in ("m", "again")]
    assert modules[0] == modules[1]
    assert isinstance(transformers.AutoConfig.from_pretrained(tmp_path / "again"), type(model.config))
