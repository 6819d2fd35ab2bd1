"""rapt.Attention: the options of a call as a value. rapt.Attended: what backward takes."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest

import rapt


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


Q, K, V, DOUT = (numbers(1, 2, 20, 8, seed=i) for i in range(4))
REACH = 3
KEYWORDS = {
    "nothing": {},
    "pattern": {"pattern": "causal"},
    "a plan": {"pattern": rapt.Plan("causal & window(4, 0)", 20)},
    "scale": {"scale": rapt.Scale.log_n(64)},
    "softcap": {"softcap": 3.0},
    "bias": {"bias": rapt.alibi(2)},
    "an array": {"bias": numbers(1, 2, 20, 20, seed=5)},
    "relative values": {"relative_values": numbers(2 * REACH + 1, 8, seed=6)},
    "rotations": {"pattern": "lsh(4, 1, {2})", "rotations": numbers(2, 8, 1, 1, seed=7)},
    "sinks": {"sinks": [0.5, -1.0]},
    "dropout": {"dropout": 0.5, "seed": 9},
    "all together": {"pattern": rapt.causal(), "scale": 0.3, "softcap": 5.0, "bias": rapt.alibi(2),
                     "sinks": np.ones(2, np.float32), "dropout": 0.25, "seed": 2**63 + 1},
}


@pytest.mark.parametrize("name", KEYWORDS)
def test_options_are_the_keywords(name):
    keywords = KEYWORDS[name]
    options = rapt.Attention(**keywords)
    one, other = rapt.attend(Q, K, V, options, return_attended=True), rapt.attend(Q, K, V, **keywords, return_attended=True)
    assert np.array_equal(one.out, other.out) and np.array_equal(one.lse, other.lse)
    first = rapt.attend_backward(DOUT, Q, K, V, one, options)
    second = rapt.attend_backward(DOUT, Q, K, V, other, **keywords)
    for a, b in zip(first, second):
        assert a is b is None or np.array_equal(a, b)
    assert rapt.explain(Q, K, V, options) == rapt.explain(Q, K, V, **keywords)


@pytest.mark.parametrize("name", sorted(KEYWORDS.keys() - {"a plan", "rotations"}))
def test_caches_take_options(name):
    keywords = KEYWORDS[name]
    cache = rapt.KvCache(kv_heads=2, dim=8)
    cache.append(cache.add(), K, V)
    options = rapt.Attention(**keywords)
    if name != "an array":  # of as many queries as keys
        assert np.array_equal(cache.attend(Q[:, :, -1:], [0], options), cache.attend(Q[:, :, -1:], [0], **keywords))
        assert cache.explain((1, 2, 1, 8), [0], options) == cache.explain((1, 2, 1, 8), [0], **keywords)
    assert np.array_equal(cache.attend(Q, [0], options, strict=True), cache.attend(Q, [0], **keywords, strict=True))


BESIDE = {"scale": 0.5, "softcap": 3.0, "bias": rapt.alibi(2), "relative_values": numbers(7, 8),
          "rotations": numbers(2, 8, 1, 1), "sinks": [0.0, 0.0], "dropout": 0.5, "seed": 1}


@pytest.mark.parametrize("name", BESIDE)
def test_a_keyword_beside_options_is_refused(name):
    beside, options = {name: BESIDE[name]}, rapt.Attention("causal")
    attended = rapt.attend(Q, K, V, options, return_attended=True)
    cache = rapt.KvCache(kv_heads=2, dim=8)
    cache.append(cache.add(), K, V)
    calls = {"attend": lambda: rapt.attend(Q, K, V, options, **beside),
             "attend_backward": lambda: rapt.attend_backward(DOUT, Q, K, V, attended, options, **beside),
             "explain": lambda: rapt.explain(Q, K, V, options, **beside)}
    if name != "rotations":  # a cache has its own
        calls["KvCache.attend"] = lambda: cache.attend(Q, [0], options, **beside)
        calls["KvCache.explain"] = lambda: cache.explain(Q, [0], options, **beside)
    for where, call in calls.items():
        with pytest.raises(TypeError, match=f"{where}: {name} is given beside a rapt.Attention, expected it inside"):
            call()


def test_a_cache_takes_rotations_when_it_is_made():
    cache = rapt.KvCache(kv_heads=2, dim=8)
    cache.append(cache.add(), K, V)
    with pytest.raises(ValueError, match="rotations are given"):
        cache.attend(Q, [0], rapt.Attention(rotations=numbers(2, 8, 1, 1)))


def test_options_are_values():
    options = rapt.Attention("causal", softcap=3.0, bias=rapt.alibi(2))
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.softcap = 4.0
    wider = dataclasses.replace(options, softcap=None)
    assert (wider.softcap, wider.pattern, wider.bias) == (None, "causal", options.bias)
    for other in (copy.copy(options), copy.deepcopy(options), pickle.loads(pickle.dumps(options))):
        assert np.array_equal(rapt.attend(Q, K, V, other), rapt.attend(Q, K, V, options))
    assert "softcap=3.0" in repr(options)
    hash(rapt.Attention(sinks=np.ones(2)))  # arrays and all


def test_no_softcap_is_none():
    assert np.array_equal(rapt.attend(Q, K, V, softcap=None), rapt.attend(Q, K, V))
    for call in (lambda: rapt.attend(Q, K, V, softcap=0), lambda: rapt.attend(Q, K, V, rapt.Attention(softcap=0.0)),
                 lambda: rapt.explain(Q, K, V, softcap=0.0)):
        with pytest.raises(ValueError, match="softcap is 0, expected a number above 0, or softcap=None for no cap"):
            call()


def test_defaults_of_a_cache_are_none():
    assert repr(rapt.KvCache(2, 8)) == repr(rapt.KvCache(2, 8, value_dim=None, window=None, lsh_tokens=None))
    assert repr(rapt.KvCache(2, 8, value_dim=8)) == repr(rapt.KvCache(2, 8))
    for name in ("value_dim", "window", "lsh_tokens"):
        with pytest.raises(ValueError, match=f"KvCache: {name} is 0, expected at least 1, or {name}=None"):
            rapt.KvCache(2, 8, **{name: 0})


@pytest.mark.parametrize("stats", [False, True])
def test_what_backward_takes_has_names(stats):
    attended = rapt.attend(Q, K, V, "causal", return_attended=True, return_stats=stats)
    out, lse, rows, global_rows, found = attended
    assert isinstance(attended, rapt.Attended) and isinstance(rows, rapt.Rows) and global_rows is None
    assert np.array_equal(out, rapt.attend(Q, K, V, "causal")) and rows.out is None
    assert (rows.max.shape, rows.sum.dtype, lse.shape) == ((1, 2, 20), np.float64, (1, 2, 20))
    np.testing.assert_allclose(lse, np.log(rows.sum) + rows.max * np.log(2), rtol=1e-6)
    assert isinstance(found, rapt.Stats) if stats else found is None
    copied = pickle.loads(pickle.dumps(attended))
    for a, b in zip(rapt.attend_backward(DOUT, Q, K, V, copied, "causal")[:3],
                    rapt.attend_backward(DOUT, Q, K, V, attended, "causal")[:3]):
        assert np.array_equal(a, b)


def test_gradients_of_the_lse_join_those_of_the_output():
    dlse = numbers(1, 2, 20, seed=8)
    attended = rapt.attend(Q, K, V, "causal", return_attended=True)
    found = rapt.attend_backward(DOUT, Q, K, V, attended, "causal", dlse=dlse)
    step, direction = 1e-2, numbers(1, 2, 20, 8, seed=9)
    def loss(q):
        out, lse = rapt.attend(q, K, V, "causal", return_lse=True)
        return float((out * DOUT).sum(dtype=float) + (lse * dlse).sum(dtype=float))
    slope = (loss(Q + step * direction) - loss(Q - step * direction)) / (2 * step)
    np.testing.assert_allclose((found.dq * direction).sum(), slope, rtol=2e-3)


KINDS = {
    "attend": (rapt.attend, rapt.attend_backward, 3),
    "bigbird": (rapt.attend_bigbird, rapt.attend_bigbird_backward, 3),
    "reformer_local": (rapt.attend_reformer_local, rapt.attend_reformer_local_backward, 3),
    "longformer": (rapt.attend_longformer, rapt.attend_longformer_backward, 6),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_gives_exact_gradients_of_16_bits(name):
    """The f32 output that the rows carry is used: f16 gradients are those of the same numbers in f32."""
    forward, backward, count = KINDS[name]
    short = [numbers(1, 2, 20, 8, seed=i).astype(np.float16) for i in range(count)]
    how = {"classes": [2] + 19 * [1]} if name == "longformer" else {}
    attended = forward(*short, **how, return_attended=True)
    assert attended.out.dtype == np.float16 and attended.rows.out.dtype == np.float32
    dout = DOUT.astype(np.float16)
    found = backward(dout, *short, attended, **how)
    wide = [x.astype(np.float32) for x in short]
    exact = backward(dout.astype(np.float32), *wide, forward(*wide, **how, return_attended=True), **how)
    for a, b in zip(found[:count], exact[:count]):
        assert a.dtype == np.float16
        np.testing.assert_allclose(a.astype(np.float32), b, atol=4 * 2**-11 * np.abs(b).max())


def test_options_of_variants_are_their_keywords():
    x = numbers(1, 2, 40, 8, seed=3)
    kept = dict(return_attended=True)
    for call, backward, options, keywords in (
            (rapt.attend_longformer, rapt.attend_longformer_backward, rapt.Longformer, {"window": 3, "causal": True}),
            (rapt.attend_bigbird, rapt.attend_bigbird_backward, rapt.BigBird, {"block": 8, "random": [[], [], [4]]}),
            (rapt.attend_reformer_local, rapt.attend_reformer_local_backward, rapt.ReformerLocal,
             {"chunk": 8, "attention_mask": [1] * 30 + [0] * 10, "empty_rows": "sum"})):
        one, other = call(x, x, x, options=options(**keywords), **kept), call(x, x, x, **keywords, **kept)
        assert np.array_equal(one.out, other.out)
        more = (None, None, None) if call is rapt.attend_longformer else ()
        first = backward(x, x, x, x, *more, one, options=options(**keywords))
        second = backward(x, x, x, x, *more, other, **keywords)
        assert np.array_equal(first.dq, second.dq)
        name = next(iter(keywords))
        with pytest.raises(TypeError, match=f"{name} is given beside a rapt.{options.__name__}, expected it inside"):
            call(x, x, x, options=options(), **{name: keywords[name]})
        with pytest.raises(TypeError, match=f"expected a rapt.{options.__name__}"):
            call(x, x, x, options=3)


def test_hashed_attention_returns_what_backward_takes():
    x = numbers(1, 2, 64, 8, seed=3)
    options = rapt.Lsh(chunk=16, rounds=2, buckets=[4])
    attended = rapt.attend_lsh(x, x, options=options, pattern="causal", return_attended=True)
    pattern = rapt.lsh(16, 2, [4]) & "causal"
    assert np.array_equal(attended.out, rapt.attend(x, x, x, pattern))
    assert rapt.attend_backward(x, x, x, x, attended, pattern).dq.shape == x.shape
    with pytest.raises(TypeError, match="chunk is given beside a rapt.Lsh"):
        rapt.attend_lsh(x, x, options=options, chunk=32)


def test_old_names_say_the_new_ones():
    x = numbers(1, 2, 40, 8, seed=3)
    for call, words in ((lambda: rapt.attend(x, x, x, return_rows=True), "attend: return_rows is called return_attended"),
                        (lambda: rapt.attend(x, x, x, nothing=1), "unexpected keyword argument 'nothing'"),
                        (lambda: rapt.attend_bigbird(x, x, x, real=[1] * 40), "real is called attention_mask now"),
                        (lambda: rapt.attend_reformer_local(x, x, x, blind="sum"), "blind is called empty_rows now"),
                        (lambda: rapt.attend_longformer(x, x, x, return_rows=True), "is called return_attended now")):
        with pytest.raises(TypeError, match=words):
            call()
    for call, words in ((lambda: rapt.positions.Yarn, "it is called YarnRope now"),
                        (lambda: rapt.positions.learned, "it is called learned_positions now"),
                        (lambda: rapt.lsh_pattern, "it is called lsh now"),
                        (lambda: rapt.nothing, "has no attribute 'nothing'$")):
        with pytest.raises(AttributeError, match=words):
            call()
