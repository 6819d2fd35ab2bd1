"""rapt.Tokenizer."""

import numpy as np
import pytest

import rapt

pytestmark = pytest.mark.skipif(rapt.Tokenizer is None, reason="rapt was built without models")


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


def test_tokenizer_round_trip():
    tokenizer = rapt.Tokenizer.bytes()
    assert tokenizer.decode(tokenizer.encode("naïve 😀")) == "naïve 😀"
    assert len(tokenizer) == 258
