"""rapt.load: a tiny GPT-2 whose folder is written by hand."""

import json
import struct

import numpy as np
import pytest

import rapt

pytestmark = pytest.mark.skipif(rapt.Tokenizer is None, reason="rapt was built without models")
WIDTH, VOCABULARY, LAYERS = 12, 258, 2


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, x in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(x.shape),
                        "data_offsets": [len(data), len(data) + x.nbytes]}
        data += x.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(1)

    def normal(*shape):
        return (0.3 * rng.standard_normal(shape)).astype(np.float32)

    tensors = {"transformer.wte.weight": normal(VOCABULARY, WIDTH),
               "transformer.wpe.weight": normal(32, WIDTH),
               "transformer.ln_f.weight": np.ones(WIDTH, np.float32), "transformer.ln_f.bias": normal(WIDTH)}
    for i in range(LAYERS):
        name = f"transformer.h.{i}."
        for norm in ("ln_1", "ln_2"):
            tensors |= {f"{name}{norm}.weight": np.ones(WIDTH, np.float32),
                        f"{name}{norm}.bias": normal(WIDTH)}
        for linear, into, out in (("attn.c_attn", WIDTH, 3 * WIDTH), ("attn.c_proj", WIDTH, WIDTH),
                                  ("mlp.c_fc", WIDTH, 4 * WIDTH), ("mlp.c_proj", 4 * WIDTH, WIDTH)):
            tensors |= {f"{name}{linear}.weight": normal(into, out), f"{name}{linear}.bias": normal(out)}
    made = tmp_path / "gpt2"
    made.mkdir()
    write_safetensors(made / "model.safetensors", tensors)
    (made / "config.json").write_text(json.dumps({
        "model_type": "gpt2", "vocab_size": VOCABULARY, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": 3,
        "n_positions": 32}))
    rapt.Tokenizer.bytes().write(str(made / "tokenizer.json"))
    return made


def test_forward_and_parameters_are_the_models_own_memory(folder):
    model = rapt.load(folder)
    assert "gpt2" in repr(model)
    sequences = [[1, 2, 3], [4, 5]]
    rows = model.forward(sequences)
    assert rows.shape == (5, WIDTH)
    assert model.forward(sequences, logits=True).shape == (5, VOCABULARY)
    np.testing.assert_allclose(model.forward([[4, 5]]), rows[3:], atol=1e-5)
    model.parameters()["decoder.norm.bias"][:] += 1
    model.refresh()
    np.testing.assert_allclose(model.forward(sequences), rows + 1, atol=1e-5)


def test_parameters_outlive_the_model(folder):
    gain = rapt.load(folder).parameters()["decoder.norm.weight"]
    assert gain.sum() == WIDTH


def test_generate(folder):
    model = rapt.load(folder)
    seen = []
    ids = model.generate([1, 2, 3], tokens=5, token=lambda prompt, id: seen.append((prompt, id)))
    assert [id for _, id in seen] == ids and len(ids) <= 5
    assert model.generate(np.array([1, 2, 3]), tokens=5) == ids
    assert model.generate([[1, 2, 3], [7]], tokens=5)[0] == ids
    assert isinstance(model.generate("ab", tokens=3), str)
    assert len(model.generate([1, 2, 3], tokens=5, token=lambda prompt, id: True)) <= 1

    def broken(prompt, id):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        model.generate([1, 2, 3], token=broken)


def test_saved_and_loaded_again(folder, tmp_path):
    model = rapt.load(folder)
    model.save(tmp_path / "again")
    again = rapt.load(tmp_path / "again")
    np.testing.assert_array_equal(again.forward([[1, 2, 3]]), model.forward([[1, 2, 3]]))
    assert again.tokenizer.encode("text") == model.tokenizer.encode("text")
    with pytest.raises(ValueError, match="not empty"):
        model.save(tmp_path / "again")
    few = rapt.load(folder, weights="q8_0")
    assert np.abs(few.forward([[1, 2, 3]]) - model.forward([[1, 2, 3]])).max() < 0.2
    with pytest.raises(ValueError, match="few bits"):
        few.save(tmp_path / "few")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "gpt2"]


def test_mistakes(folder, tmp_path):
    model = rapt.load(folder)
    with pytest.raises(RuntimeError, match="no-such-model"):
        rapt.load("no-such-model")
    with pytest.raises(TypeError):
        rapt.load(None)
    with pytest.raises(ValueError, match="stored, f32"):
        rapt.load(folder, weights="bogus")
    with pytest.raises(TypeError):
        model.forward([[1.7]])
    with pytest.raises(ValueError, match="258"):
        model.forward([[400]])
    with pytest.raises(ValueError, match="encoder"):
        model.embed("text")


def test_tokenizer_round_trip():
    tokenizer = rapt.Tokenizer.bytes()
    assert tokenizer.decode(tokenizer.encode("naïve 😀")) == "naïve 😀"
    assert len(tokenizer) == 258


def test_inspect_gives_tables_maps_and_a_page(folder):
    model = rapt.load(folder)
    report = rapt.inspect(model, "abcdefghijklmnop")
    assert report.heads["head"] == [0, 1, 2] * LAYERS
    assert all(len(column) == 3 * LAYERS for column in report.heads.values())
    assert len(report.trials["loss"]) == len(report.trials["name"]) > 0
    assert report.tokens == list("abcdefghijklmnop")
    for layer in range(LAYERS):
        for head in range(3):
            rows = report.map(layer, head)
            assert rows.shape == (16, 16)
            np.testing.assert_allclose(rows.sum(1), 1, atol=1e-5)
            assert np.all(np.triu(rows, 1) == 0)
            kept = report.heads["sink_mass"][3 * layer + head]
            assert abs(rows[:, 0].mean() - kept) < 1e-5
    assert "<script" in report.html() and "iframe" in report._repr_html_()
    assert "2 layers of 3 heads on 16 tokens" in repr(report)


def test_inspect_says_what_is_wrong(folder):
    model = rapt.load(folder)
    with pytest.raises(ValueError, match="empty"):
        rapt.inspect(model, "")
    with pytest.raises(ValueError, match="33 tokens.*reads 32"):
        rapt.inspect(model, "a" * 33)
    assert rapt.inspect(model, "a" * 33, limit=32, maps=False, trials=False).trials == {}
    with pytest.raises(ValueError, match="maps=True"):
        rapt.inspect(model, ids=[1, 2, 3], maps=False).map(0, 0)
    with pytest.raises(ValueError, match="layers below 2"):
        rapt.inspect(model, ids=[1, 2, 3]).map(2, 0)
