"""What rapt.load and the functions of a model refuse, and what they say."""

import pytest

import rapt

pytestmark = pytest.mark.skipif(rapt.Tokenizer is None, reason="rapt was built without models")


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
