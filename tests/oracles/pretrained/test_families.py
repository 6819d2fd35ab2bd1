"""Models of others, saved by Transformers and read by us: logits, loss and all gradients; with a
cache; written again and loaded by Transformers."""

import collections
import json
import os
import pathlib
import re
import subprocess

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from families import BODIES, CAUSAL, LAYERS, MASKED, REFORMERS, T5S, distilbert, ids, noisy

ROOT = pathlib.Path(__file__).resolve().parents[3]
TOOL = pathlib.Path(os.environ.get("RAPT_FAMILY_TOOL", ROOT / "build/release/bin/family_tool"))
pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built")
LENGTHS = (40, 23, 31)


def run(*words):
    done = subprocess.run([TOOL, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_tokens(path, **parts):
    """parts: name to a list of sequences."""
    count = len(next(iter(parts.values())))
    lines = [f"{name} {' '.join(map(str, sequences[i].tolist()))}\n" for i in range(count)
             for name, sequences in parts.items()]
    path.write_text("".join(lines))


def assert_close(what, mine, theirs, layers=LAYERS, size=None):
    """Within 64 roundings for each layer, of the largest number."""
    size = theirs.abs().max().item() if size is None else size
    error = (mine.double() - theirs.double().reshape(mine.shape)).abs().max().item()
    assert error <= 64 * layers * 2**-24 * size, f"{what}: off by {error}, the largest is {size}"


@pytest.fixture(autouse=True)
def stay_in_double(monkeypatch):
    """Norms, softmaxes and rotations of Transformers go through f32 whatever the model is."""
    to = torch.Tensor.to

    def to_no_less(x, *arguments, **named):
        down = torch.float32 in (*arguments, named.get("dtype")) and x.dtype == torch.float64
        return x if down else to(x, *arguments, **named)

    monkeypatch.setattr(torch.Tensor, "to", to_no_less)
    monkeypatch.setattr(torch.Tensor, "float", lambda x: to_no_less(x, torch.float32))


def padded(sequences, fill):
    return torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=fill)


def sequences(seed, lengths=LENGTHS):
    return [ids(1, n, seed + i)[0] for i, n in enumerate(lengths)]


def targets_of(lengths=LENGTHS):
    made = sequences(100, lengths)
    for target in made:
        target[5::9] = -100
    return made


def siblings(name):
    """Queries, keys and values are one tensor in rapt. The gradient of a key's bias is a sum that is
    zero but for rounding, whose size is that of its neighbours."""
    return re.sub(r"(query|key|value|[qkv]_proj|[qkv]_lin)(?=_global|\.)", "qkv", name)


def compare_gradients(model, folder, mine, layers=LAYERS):
    # Tensors that share their numbers are stored, and have gradients, once.
    stored = {name for name in load_file(folder / "model.safetensors")}
    gradients = {name: p.grad for name, p in model.named_parameters(remove_duplicate=False)
                 if name in stored and p.grad is not None}
    sizes = collections.defaultdict(float)
    for name, gradient in gradients.items():
        sizes[siblings(name)] = max(sizes[siblings(name)], gradient.abs().max().item())
    for name, gradient in gradients.items():
        assert_close(name, mine.pop(f"gradient.{name}"), gradient, layers, sizes[siblings(name)])
    left = [name for name in mine if name.startswith("gradient.")]
    assert not left, left


def compare(model, folder, theirs, mine_parts, targets, layers=LAYERS, type=torch.float64):
    """theirs(model): logits [rows, entries] of the rows that count, in the order of our tokens."""
    model.save_pretrained(folder)
    write_tokens(folder / "tokens.txt", **mine_parts)
    said = run("answer", folder, folder / "tokens.txt", folder / "answer.safetensors")
    assert said == "", said
    mine = load_file(folder / "answer.safetensors")
    model = model.to(type)
    logits = theirs(model)
    loss = torch.nn.functional.cross_entropy(logits, torch.cat(targets))
    loss.backward()
    assert_close("logits", mine["logits"], logits.detach(), layers)
    assert abs(mine["loss"].item() - loss.item()) <= 1e-6 * loss.item()
    compare_gradients(model, folder, mine, layers)


def rows_that_count(logits, lengths=LENGTHS):
    return torch.cat([logits[i, :n] for i, n in enumerate(lengths)])


def plain_parts(tokens, targets):
    return {"tokens": tokens, "targets": targets}


def mask_of(lengths=LENGTHS):
    return padded([torch.ones(n, dtype=torch.long) for n in lengths], 0)


@pytest.mark.parametrize("name", CAUSAL)
def test_decoders_in_padded_batches(name, tmp_path):
    tokens, targets = sequences(1), targets_of()
    compare(noisy(CAUSAL[name]), tmp_path,
            lambda m: rows_that_count(m(padded(tokens, 0), attention_mask=mask_of()).logits),
            plain_parts(tokens, targets), targets)


def longformer_global(tokens):
    marks = [torch.zeros(len(t), dtype=torch.long) for t in tokens]
    for mark in marks:
        mark[0] = mark[7] = 1
    return marks


@pytest.mark.parametrize("name", ["roberta", "xlm-roberta", "camembert", "longformer"])
def test_padding_within_a_text_takes_no_position(name, tmp_path):
    tokens, targets = sequences(1), targets_of()
    for i, sequence in enumerate(tokens):
        sequence[3 + i] = sequence[9] = sequence[-1] = 1
    model = noisy(MASKED[name])
    model.save_pretrained(tmp_path)
    write_tokens(tmp_path / "tokens.txt", **plain_parts(tokens, targets))
    run("answer", tmp_path, tmp_path / "tokens.txt", tmp_path / "answer.safetensors")
    mine = load_file(tmp_path / "answer.safetensors")["logits"]
    with torch.no_grad():
        theirs = model.double()(padded(tokens, 1), attention_mask=mask_of()).logits
    assert_close("logits", mine, rows_that_count(theirs))


@pytest.mark.parametrize("name", MASKED)
def test_encoders_in_padded_batches(name, tmp_path):
    tokens, targets = sequences(1), targets_of()
    parts, more = plain_parts(tokens, targets), {}
    if name in ("bert", "roformer"):
        types = [(torch.arange(len(t)) > 11).long() for t in tokens]
        parts["types"], more["token_type_ids"] = types, padded(types, 0)
    if name == "longformer":
        parts["global"] = longformer_global(tokens)
        more["global_attention_mask"] = padded(parts["global"], 0)
    fill = 1 if name in ("roberta", "xlm-roberta", "camembert", "longformer") else 0
    compare(noisy(MASKED[name]), tmp_path,
            lambda m: rows_that_count(m(padded(tokens, fill), attention_mask=mask_of(), **more).logits),
            parts, targets)


@pytest.mark.parametrize("name", T5S)
def test_t5_in_padded_batches(name, tmp_path):
    tokens, targets, sources = sequences(1), targets_of(), sequences(7, (12, 33, 20))
    compare(noisy(T5S[name]), tmp_path,
            lambda m: rows_that_count(m(padded(sources, 0), attention_mask=mask_of((12, 33, 20)),
                                        decoder_input_ids=padded(tokens, 0)).logits),
            plain_parts(tokens, targets) | {"sources": sources}, targets, layers=2 * LAYERS)


@pytest.mark.parametrize("name", REFORMERS)
def test_reformer(name, tmp_path):
    """Lengths that are no multiples of chunks are padded by theirs, which changes their hashing;
    sequences of one length and no padding are what can be compared. In double they would draw other
    rotations, so theirs stay in float, and both sides round."""
    lengths = (64, 64)
    tokens, targets = sequences(1, lengths), targets_of(lengths)
    compare(noisy(REFORMERS[name]), tmp_path, lambda m: m.train()(torch.stack(tokens)).logits.flatten(0, 1),
            plain_parts(tokens, targets), targets, layers=8, type=torch.float32)


@pytest.mark.parametrize("name", BODIES)
def test_a_body_without_a_head(name, tmp_path):
    model = noisy(BODIES[name])
    model.save_pretrained(tmp_path)
    tokens = sequences(1)
    write_tokens(tmp_path / "tokens.txt", tokens=tokens)
    assert run("answer", tmp_path, tmp_path / "tokens.txt", tmp_path / "answer.safetensors") == ""
    mine = load_file(tmp_path / "answer.safetensors")
    fill = model.config.pad_token_id or 0
    hidden = rows_that_count(model.double()(padded(tokens, fill), attention_mask=mask_of()).last_hidden_state)
    assert_close("hidden", mine["hidden"], hidden.detach())
    hidden.sum().backward()  # as the tool does where there is no loss
    compare_gradients(model, tmp_path, mine)


def test_sinusoidal_positions_of_distilbert_are_weights(tmp_path):
    model = noisy(distilbert(transformers.DistilBertForMaskedLM, sinusoidal_pos_embds=True))
    model.save_pretrained(tmp_path)
    tokens = sequences(1)
    write_tokens(tmp_path / "tokens.txt", **plain_parts(tokens, targets_of()))
    assert run("answer", tmp_path, tmp_path / "tokens.txt", tmp_path / "answer.safetensors") == ""
    with torch.no_grad():
        theirs = model.double()(padded(tokens, 0), attention_mask=mask_of()).logits
    assert_close("logits", load_file(tmp_path / "answer.safetensors")["logits"], rows_that_count(theirs))


@pytest.mark.parametrize("name", BODIES)
def test_a_body_written_again_and_loaded_by_transformers(name, tmp_path):
    model = noisy(BODIES[name])
    model.save_pretrained(tmp_path / "theirs")
    run("copy", tmp_path / "theirs", tmp_path / "ours")
    again, report = type(model).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert json.loads((tmp_path / "ours/config.json").read_text())["model_type"] == model.config.model_type
    missing = [key for key in report["missing_keys"] if not key.startswith("pooler.")]  # BERT's, not used
    assert not missing and not report["unexpected_keys"] and not report["mismatched_keys"], report
    tokens = torch.stack(sequences(1, (64, 64)))
    with torch.no_grad():
        torch.testing.assert_close(again.eval()(tokens).last_hidden_state, model(tokens).last_hidden_state,
                                   rtol=0, atol=0)


@pytest.mark.parametrize("name", ["gpt2", "llama-tied-biases", "t5"])
def test_a_head_that_is_stored_apart_goes_before_the_tie(name, tmp_path):
    model = noisy((CAUSAL | T5S)[name])
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    embedding = model.get_input_embeddings().weight.detach()
    tensors["lm_head.weight"] = embedding + 0.1 * torch.randn(embedding.shape)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    tokens, sources = sequences(1, (40,)), sequences(7, (12,))
    more = {"sources": sources} if name in T5S else {}
    write_tokens(tmp_path / "tokens.txt", tokens=tokens, targets=targets_of((40,)), **more)
    said = run("answer", tmp_path, tmp_path / "tokens.txt", tmp_path / "answer.safetensors")
    assert "lm_head.weight differs" in said
    again = type(model).from_pretrained(tmp_path).double()
    with torch.no_grad():
        theirs = (again(torch.stack(sources), decoder_input_ids=torch.stack(tokens)) if name in T5S
                  else again(torch.stack(tokens)))
    assert_close("logits", load_file(tmp_path / "answer.safetensors")["logits"], theirs.logits[0], 2 * LAYERS)


@pytest.mark.parametrize("name", [*CAUSAL, *T5S])
def test_a_cache_gives_the_same_logits(name, tmp_path):
    tokens, sources = sequences(1, (40,)), sequences(7, (12,))
    model = noisy((CAUSAL | T5S)[name])
    model.save_pretrained(tmp_path)
    write_tokens(tmp_path / "tokens.txt", tokens=tokens,
                 **({"sources": sources} if name in T5S else {}))
    run("steps", tmp_path, tmp_path / "tokens.txt", tmp_path / "steps.safetensors")
    mine = load_file(tmp_path / "steps.safetensors")["logits"]
    model = model.double()
    with torch.no_grad():
        theirs = (model(torch.stack(sources), decoder_input_ids=torch.stack(tokens)) if name in T5S
                  else model(torch.stack(tokens)))
    assert_close("logits", mine, theirs.logits[0], 2 * LAYERS)


@pytest.mark.parametrize("name", [*CAUSAL, *MASKED, *T5S, *REFORMERS])
def test_written_again_and_loaded_by_transformers(name, tmp_path):
    model = noisy((CAUSAL | MASKED | T5S | REFORMERS)[name])
    model.save_pretrained(tmp_path / "theirs")
    run("copy", tmp_path / "theirs", tmp_path / "ours")
    again, report = type(model).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert json.loads((tmp_path / "ours/config.json").read_text())["model_type"] == model.config.model_type
    assert not report["missing_keys"], report
    assert not report["unexpected_keys"] and not report["mismatched_keys"], report
    state = again.state_dict()
    for key, value in model.state_dict().items():
        if name in REFORMERS and key == "lm_head.bias":
            continue  # theirs never adds it, ours has none
        assert torch.equal(value, state[key]), key
    tokens = torch.stack(sequences(1, (64, 64)))
    inputs = {"decoder_input_ids": tokens} if name in T5S else {}
    with torch.no_grad():
        torch.testing.assert_close(again.eval()(tokens, **inputs).logits, model(tokens, **inputs).logits,
                                   rtol=0, atol=0)
