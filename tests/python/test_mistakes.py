"""What is no array, no number and no mask is named, at every door: one TypeError or ValueError."""

import numpy as np
import pytest

import rapt
from rapt.compat import flash_attn

X = np.random.default_rng(0).standard_normal((1, 2, 8, 4), dtype=np.float32)
TABLE, PACKED = X[0, 0], X[0]
ROPE = rapt.positions.Rope(4)
NOTHING = {"a text": "abc", "a list": [1.0], "None": None, "a number": 3, "an object": object(), "a dict": {}}


def rows_of(call, **how):
    out, rows = call(X, X, X, return_rows=True, **how)
    return dict(dout=X, q=X, k=X, v=X, out=out, rows=rows, **how)


def cache_with(sequence=0):
    cache = rapt.KvCache(kv_heads=2, dim=4)
    cache.append(cache.add(), X, X)
    return cache


QKV = dict(q=X, k=X, v=X)
LONG = dict(query=X, key=X, value=X)
# A door, arguments that it takes, and those in which none of NOTHING makes sense.
DOORS = {
    "attend": (rapt.attend, QKV, "q k v"),
    "attend_backward": (rapt.attend_backward, rows_of(rapt.attend), "dout q k v out rows"),
    "scaled_dot_product_attention": (rapt.scaled_dot_product_attention, LONG, "query key value"),
    "flex_attention": (rapt.flex_attention, LONG, "query key value"),
    "attend_bigbird": (rapt.attend_bigbird, dict(QKV, block=4, first_block_counts=1), "q k v"),
    "attend_bigbird_backward": (rapt.attend_bigbird_backward, rows_of(rapt.attend_bigbird, block=4),
                                "dout q k v out rows"),
    "local": (rapt.local, dict(QKV, chunk=4), "q k v"),
    "local_backward": (rapt.local_backward, rows_of(rapt.local, chunk=4), "dout q k v out rows"),
    "longformer": (rapt.longformer, dict(QKV, window=2), "q k v"),
    "longformer_backward": (rapt.longformer_backward,
                            dict(rows_of(rapt.longformer, window=2), q_global=None, k_global=None, v_global=None),
                            "dout q k v out rows"),
    "lsh": (rapt.lsh, dict(qk=X, v=X, chunk=4, buckets=[2]), "qk v"),
    "lsh_recall": (rapt.lsh_recall, dict(q=X, k=X, pattern="lsh(4, 1, {2})", top=2), "q k"),
    "Rope.apply": (ROPE.apply, dict(x=X), "x"),
    "Rope.apply_backward": (ROPE.apply_backward, dict(dout=X), "dout"),
    "learned": (rapt.positions.learned, dict(table=TABLE, tokens=4), "table"),
    "axial": (rapt.positions.axial, dict(rows=TABLE, columns=TABLE, tokens=4), "rows columns"),
    "sinusoidal": (rapt.positions.sinusoidal, dict(positions=4, dim=4, like=X), "like"),
    "KvCache.append": (lambda **how: cache_with().append(0, **how), dict(k=X, v=X), "k v"),
    "KvCache.attend": (lambda **how: cache_with().attend(sequences=[0], **how), dict(q=X), "q"),
    "mask": (rapt.mask, dict(may_see=np.ones((3, 3), bool)), "may_see"),
    "flash_attn_func": (flash_attn.flash_attn_func, QKV, "q k v"),
    "flash_attn_varlen_func": (flash_attn.flash_attn_varlen_func, dict(
        q=PACKED, k=PACKED, v=PACKED, cu_seqlens_q=[0, 2], cu_seqlens_k=[0, 2], max_seqlen_q=2, max_seqlen_k=2),
        "q k v cu_seqlens_q"),
    "flash_attn_with_kvcache": (flash_attn.flash_attn_with_kvcache, dict(q=X, k_cache=X, v_cache=X),
                                "q k_cache v_cache"),
}
OPERANDS = [(door, argument) for door, (_, _, names) in DOORS.items() for argument in names.split()]


@pytest.mark.parametrize("door, argument", OPERANDS)
def test_what_is_no_array_is_named(door, argument):
    call, arguments, _ = DOORS[door]
    call(**arguments)
    for what, bad in NOTHING.items():
        with pytest.raises((TypeError, ValueError)) as error:
            call(**{**arguments, argument: bad})
        assert "expected" in str(error.value), what


NUMBERS = [("attend_bigbird", "block"), ("attend_bigbird", "first_block_counts"), ("local", "chunk"),
           ("local", "before"), ("local", "after"), ("local", "dropout"), ("longformer", "window"),
           ("longformer", "dropout"), ("attend", "softcap"), ("attend", "dropout"), ("learned", "tokens"),
           ("axial", "batch")]


@pytest.mark.parametrize("door, argument", NUMBERS)
def test_what_is_no_number_is_named(door, argument):
    call, arguments, _ = DOORS[door]
    for bad in ("abc", [1.0], object()):
        with pytest.raises(TypeError, match="expected a"):
            call(**{**arguments, argument: bad, **({"seed": 1} if argument == "dropout" else {})})


def test_contexts_and_rows_are_named():
    for door in ("attend", "attend_bigbird", "local", "longformer"):
        call, arguments, _ = DOORS[door]
        with pytest.raises(TypeError, match="expected None or a rapt.Context"):
            call(**arguments, context="fast")
    for door in ("attend_bigbird_backward", "local_backward", "longformer_backward"):
        call, arguments, _ = DOORS[door]
        with pytest.raises(ValueError, match="rows has 1 parts, expected"):
            call(**{**arguments, "rows": arguments["rows"][:1]})


ARRAYS = {
    "masked": (np.ma.masked_array(X, X > 0), "MaskedArray, whose mask would be ignored"),
    "byte-swapped": (X.astype(">f4"), "another type, >f4"),
    "structured": (np.zeros((1, 2, 8, 4), [("a", "f4"), ("b", "f4")]), "another type"),
    "objects": (X.astype(object), "another type, object"),
    "complex": (X.astype(np.complex64), "another type, complex64"),
    "texts": (X.astype(str), "another type"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_mean_something_else_are_refused(name):
    array, words = ARRAYS[name]
    for call in (lambda: rapt.attend(array, X, X), lambda: rapt.attend(X, X, X, bias=array),
                 lambda: ROPE.apply(array), lambda: cache_with().append(0, X, array)):
        with pytest.raises(TypeError, match=words):
            call()
