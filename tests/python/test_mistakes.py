"""What is no array, no number and no mask is named, at every door: one TypeError or ValueError."""

import numpy as np
import pytest

import rapt
from rapt.compat import flash_attn

X = np.random.default_rng(0).standard_normal((1, 2, 8, 4), dtype=np.float32)
TABLE, PACKED = X[0, 0], X[0]
ROPE = rapt.positions.Rope(4)
NOTHING = {"a text": "abc", "a list": [1.0], "None": None, "a number": 3, "an object": object(), "a dict": {}}


def backward_of(call, **how):
    return dict(dout=X, q=X, k=X, v=X, attended=call(X, X, X, return_attended=True, **how), **how)


def cache_with(sequence=0):
    cache = rapt.KvCache(kv_heads=2, dim=4)
    cache.append(cache.add(), X, X)
    return cache


QKV = dict(q=X, k=X, v=X)
LONG = dict(query=X, key=X, value=X)
# A door, arguments that it takes, and those in which none of NOTHING makes sense.
DOORS = {
    "attend": (rapt.attend, QKV, "q k v"),
    "attend_backward": (rapt.attend_backward, backward_of(rapt.attend), "dout q k v attended"),
    "scaled_dot_product_attention": (rapt.scaled_dot_product_attention, LONG, "query key value"),
    "flex_attention": (rapt.flex_attention, LONG, "query key value"),
    "attend_bigbird": (rapt.attend_bigbird, dict(QKV, block=4, first_block_counts=1), "q k v"),
    "attend_bigbird_backward": (rapt.attend_bigbird_backward, backward_of(rapt.attend_bigbird, block=4),
                                "dout q k v attended"),
    "attend_reformer_local": (rapt.attend_reformer_local, dict(QKV, chunk=4), "q k v"),
    "attend_reformer_local_backward": (rapt.attend_reformer_local_backward,
                                       backward_of(rapt.attend_reformer_local, chunk=4), "dout q k v attended"),
    "attend_longformer": (rapt.attend_longformer, dict(QKV, window=2), "q k v"),
    "attend_longformer_backward": (rapt.attend_longformer_backward,
                                   dict(backward_of(rapt.attend_longformer, window=2), q_global=None, k_global=None,
                                        v_global=None), "dout q k v attended"),
    "attend_lsh": (rapt.attend_lsh, dict(qk=X, v=X, chunk=4, buckets=[2]), "qk v"),
    "lsh_recall": (rapt.lsh_recall, dict(q=X, k=X, pattern="lsh(4, 1, {2})", top=2), "q k"),
    "Rope.apply": (ROPE.apply, dict(x=X), "x"),
    "Rope.apply_backward": (ROPE.apply_backward, dict(dout=X), "dout"),
    "learned": (rapt.positions.learned_positions, dict(table=TABLE, tokens=4), "table"),
    "axial": (rapt.positions.axial_positions, dict(rows=TABLE, columns=TABLE, tokens=4), "rows columns"),
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


NUMBERS = [("attend_bigbird", "block"), ("attend_bigbird", "first_block_counts"),
           *[("attend_reformer_local", name) for name in ("chunk", "before", "after", "dropout")],
           ("attend_longformer", "window"), ("attend_longformer", "dropout"), ("attend", "softcap"),
           ("attend", "dropout"), ("learned", "tokens"), ("axial", "batch")]


@pytest.mark.parametrize("door, argument", NUMBERS)
def test_what_is_no_number_is_named(door, argument):
    call, arguments, _ = DOORS[door]
    for bad in ("abc", [1.0], object()):
        with pytest.raises(TypeError, match="expected a"):
            call(**{**arguments, argument: bad, **({"seed": 1} if argument == "dropout" else {})})


BACKWARD = [door for door in DOORS if door.startswith("attend") and door.endswith("_backward")]


def test_contexts_and_rows_are_named():
    for door in ("attend", "attend_bigbird", "attend_reformer_local", "attend_longformer"):
        call, arguments, _ = DOORS[door]
        with pytest.raises(TypeError, match="expected None or a rapt.Context"):
            call(**arguments, context="fast")
    for door in BACKWARD:
        call, arguments, _ = DOORS[door]
        attended = arguments["attended"]
        with pytest.raises(TypeError, match=r"attended.rows is .* \(tuple\), expected a rapt.Rows"):
            call(**{**arguments, "attended": attended._replace(rows=attended.rows[:1])})
    call, arguments, _ = DOORS["attend_longformer_backward"]
    with pytest.raises(TypeError, match="attended.global_rows is None, expected a rapt.Rows"):
        call(**{**arguments, "attended": arguments["attended"]._replace(global_rows=None)})


@pytest.mark.parametrize("door", BACKWARD)
def test_what_is_no_array_is_named_inside_attended(door):
    call, arguments, _ = DOORS[door]
    attended = arguments["attended"]
    for what, bad in NOTHING.items():
        wrong = [attended._replace(out=bad), attended._replace(rows=bad),
                 attended._replace(rows=attended.rows._replace(max=bad)),
                 attended._replace(rows=attended.rows._replace(sum=bad))]
        for given in wrong:
            with pytest.raises((TypeError, ValueError)) as error:
                call(**{**arguments, "attended": given})
            assert "expected" in str(error.value), what


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
