"""Patterns, plans, caches and positions from Python."""

import pickle

import numpy as np
import pytest

import rapt
from rapt.compat.flash_attn import flash_attn_func


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def test_patterns_are_values():
    pattern = rapt.causal() & rapt.window(512, 0)
    assert str(pattern) == "causal & window(512, 0)"
    assert pattern == rapt.Pattern(str(pattern)) and hash(pattern) == hash(rapt.Pattern(str(pattern)))
    assert pattern != rapt.causal()
    assert (pattern == "causal") is False
    assert "causal" & rapt.window(512, 0) == pattern
    assert pickle.loads(pickle.dumps(pattern)) == pattern
    assert repr(rapt.full() | rapt.tokens([0, 3])) == 'Pattern("full | tokens({0, 3})")'
    assert rapt.window(2, 0).keys_of(5, 8, 8) == [(3, 6)]
    assert rapt.causal("first").keys_of(0, 2, 8) == [(0, 1)]
    assert rapt.documents(np.array([3, 4])) == rapt.documents([3, 4])
    with pytest.raises(ValueError, match="align"):
        rapt.causal("middle")


def test_leaves_have_the_text_they_are_called_by():
    leaves = [rapt.prefix(3), rapt.documents([2, 3], [3, 4]), rapt.blocks(2, [[0], [1]]), rapt.keys(4),
              rapt.chunks(4, 1, 0), rapt.dilated(2, 1, 1), rapt.lsh(4, 2, [4])]
    for leaf in leaves:
        assert rapt.Pattern(str(leaf)) == leaf
    assert leaves[-1].has_lsh and not leaves[0].has_lsh


def test_a_mask_is_its_ranges():
    seen = np.random.default_rng(0).random((7, 9)) < 0.5
    for mask in (seen, seen.T.copy().T):
        pattern = rapt.mask(mask)
        for query in range(7):
            found = np.zeros(9, bool)
            for begin, end in pattern.keys_of(query, 7, 9):
                found[begin:end] = True
            assert np.array_equal(found, seen[query])


def test_plans_draw_themselves():
    plan = rapt.Plan("causal", 256)
    assert (plan.pairs, plan.whole_tiles, plan.masked_tiles) == (256 * 257 // 2, 6, 4)
    assert plan.visits(1) == [(0, 1, True), (1, 1, False)]
    assert plan.keys_seen(9) == 10
    assert "▒" in repr(plan) and "█" in repr(plan)
    svg = plan._repr_svg_()
    assert svg.count("<rect") == 1 + 7 and svg.endswith("</svg>")


@pytest.mark.parametrize("type_, tolerance", [("f32", 1e-6), ("bf16", 0.05), ("int8", 0.05)])
def test_a_cache_holds_what_was_appended(type_, tolerance):
    k, v, q = (numbers(1, 2, 70, 8, seed=i) for i in range(3))
    cache = rapt.KvCache(kv_heads=2, dim=8, type=type_)
    first = cache.add()
    cache.append(first, k[:, :, :50], v[:, :, :50])
    second = cache.fork(first)
    cache.append(second, k[:, :, 50:].swapaxes(1, 2), v[:, :, 50:].swapaxes(1, 2), layout="blhd")
    assert (cache.tokens(first), cache.tokens(second)) == (50, 70)
    assert cache.pages > 0 and cache.bytes > 0 and "KvCache" in repr(cache)
    both = np.concatenate([q[:, :, -3:]] * 2)
    out, lse = cache.attend(both, [second, first], "causal", return_lse=True)
    exact = rapt.attend(q[:, :, -3:], k, v, "causal")
    np.testing.assert_allclose(out[:1], exact, atol=tolerance)
    shorter = rapt.attend(q[:, :, -3:], k[:, :, :50], v[:, :, :50], "causal")
    np.testing.assert_allclose(out[1:], shorter, atol=tolerance)
    cache.truncate(second, 50)
    np.testing.assert_array_equal(cache.attend(both[:1], [second], "causal"), out[1:])
    cache.remove(first)
    with pytest.raises(ValueError):
        cache.tokens(first)
    with pytest.raises(ValueError, match="type|f32"):
        rapt.KvCache(kv_heads=2, dim=8, type="int4")
    with pytest.raises(ValueError, match="q has 1 tokens and sequence .* has 0.*appended before"):
        cache.attend(q[:, :, :1], [cache.add()], "causal")


def test_explain_takes_the_type_of_an_array():
    halves = np.zeros((1, 8, 128, 64), np.float16)
    assert "operands  f16" in rapt.explain(halves, halves, halves)
    assert "operands  f32" in rapt.explain(halves, halves, halves, dtype="f32")
    assert "operands  f32" in rapt.explain(halves.shape, halves.shape, halves.shape)
    assert "queries   f16" in rapt.KvCache(kv_heads=8, dim=64).explain(halves, 128)


def test_a_cache_explains_its_route():
    cache = rapt.KvCache(kv_heads=2, dim=64, type="bf16")
    said = cache.explain((1, 8, 1, 64), 4096, "causal")
    assert "cache     bf16" in said and "route     decode" in said
    assert "route     decode" not in cache.explain(np.zeros((1, 8, 1, 64)), 4096, "causal", strict=True)
    older = rapt.KvCache(kv_heads=2, dim=64, context=rapt.Context(isa="scalar"))
    assert "isa       scalar" in older.explain((1, 8, 1, 64), 4096)
    ours = older.add()  # and it attends in its own context
    older.append(ours, np.ones((1, 2, 3, 64), np.float32), np.ones((1, 2, 3, 64), np.float32))
    assert "isa       scalar" in older.explain((1, 8, 1, 64), [ours])
    assert (older.attend(np.ones((1, 8, 1, 64), np.float32), [ours]) == 1).all()
    with pytest.raises(ValueError, match="q has 3 sizes, expected 4"):
        cache.explain((1, 8, 64), 4096)
    with pytest.raises(TypeError, match="explain: sequences is a str, expected an array or a list of numbers"):
        cache.explain((1, 8, 1, 64), "all")
    with pytest.raises(ValueError, match="explain: tokens is -1, expected 0 to"):
        cache.explain((1, 8, 1, 64), -1)
    with pytest.raises(ValueError, match="q has 5 tokens and a sequence has 4, so that the first query"):
        cache.explain((1, 8, 5, 64), 4, "causal")
    with pytest.raises(TypeError, match=r"explain: q is 5 \(int\), expected a shape"):
        cache.explain(5, 4096)


def test_a_cache_explains_what_attend_takes_and_refuses_the_rest():
    cache = rapt.KvCache(kv_heads=2, dim=8, window=64)
    long, short = cache.add(), cache.add()
    for _ in range(4):
        cache.append(long, numbers(1, 2, 64, 8), numbers(1, 2, 64, 8))
    cache.append(short, numbers(1, 2, 5, 8), numbers(1, 2, 5, 8))
    near = "causal & window(63, 0)"
    assert cache.explain((1, 2, 1, 8), [long], near) == cache.explain((1, 2, 1, 8), 256, near)
    both = cache.explain((2, 2, 1, 8), [long, short], near)
    assert both.startswith("sequences {1} of 5 tokens\n") and "\n\nsequences {0} of 256 tokens\n" in both
    for shape, sequences, how in (((1, 2, 1, 8), [long], {}), ((1, 2, 1, 8), [7], {}), ((1, 2, 1, 8), [0, 1], {}),
                                  ((1, 3, 1, 8), [0], {}), ((1, 2, 1, 9), [0], {}),
                                  ((1, 2, 6, 8), [short], {"pattern": "causal"}),
                                  ((1, 2, 1, 8), [short], {"pattern": "lsh(4, 1, {2})"}),
                                  ((1, 2, 1, 8), [short], {"sinks": [1.0]}),
                                  ((1, 2, 1, 8), [short], {"softcap": -1.0}),
                                  ((1, 2, 1, 8), [short], {"softcap": 0.0})):
        with pytest.raises(ValueError) as refused:
            cache.attend(np.zeros(shape, np.float32), sequences, **how)
        with pytest.raises(ValueError) as explained:
            cache.explain(shape, sequences, **how)
        assert str(explained.value) == str(refused.value)
    hashed = rapt.KvCache(kv_heads=2, dim=8, lsh=rapt.lsh(4, 1, [2]))
    hashed.append(hashed.add(), numbers(1, 2, 9, 8), numbers(1, 2, 9, 8))
    assert "hashed" in hashed.explain((1, 2, 1, 8), [0], "lsh(4, 1, {2})")
    for pattern in ("causal", "lsh(4, 2, {2})"):
        with pytest.raises(ValueError) as refused:
            hashed.attend(numbers(1, 2, 1, 8), [0], pattern)
        with pytest.raises(ValueError) as explained:
            hashed.explain((1, 2, 1, 8), [0], pattern)
        assert str(explained.value) == str(refused.value)


CACHE_MISTAKES = [
    (lambda cache, x: rapt.KvCache(), r"missing 2 required positional arguments: 'kv_heads' and 'dim'"),
    (lambda cache, x: rapt.KvCache("2", 8), r"KvCache: kv_heads is '2' \(str\), expected a whole number"),
    (lambda cache, x: rapt.KvCache(2, 8, type=None), "KvCache: type is None, expected a word"),
    (lambda cache, x: rapt.KvCache(2, 8, context=3), r"KvCache: context is 3 \(int\), expected None or a rapt.Context"),
    (lambda cache, x: cache.append(x, x), "missing 1 required positional argument: 'v'"),
    (lambda cache, x: cache.append([0], x, x), r"KvCache.append: sequence is \[0\] \(list\), expected a whole number"),
    (lambda cache, x: cache.append(0, None, x), "k is a NoneType, expected an array"),
    (lambda cache, x: cache.append(0, x, "v"), "v is a str, expected an array"),
    (lambda cache, x: cache.append_padding(0, 1.5), r"append_padding: tokens is 1.5 \(float\), expected a whole number"),
    (lambda cache, x: cache.fork("a"), r"KvCache.fork: sequence is 'a' \(str\), expected a whole number"),
    (lambda cache, x: cache.remove(None), "KvCache.remove: sequence is None, expected a whole number"),
    (lambda cache, x: cache.truncate(0, None), "KvCache.truncate: tokens is None, expected a whole number"),
    (lambda cache, x: cache.tokens(None), "KvCache.tokens: sequence is None, expected a whole number"),
    (lambda cache, x: cache.attend(x, [0], strict="no"), r"KvCache.attend: strict is 'no' \(str\), expected True or False"),
    (lambda cache, x: cache.attend(x, [0], return_lse="no"), "KvCache.attend: return_lse is 'no'.*True or False"),
]


@pytest.mark.parametrize("call, words", CACHE_MISTAKES, ids=lambda part: part if isinstance(part, str) else "")
def test_mistakes_of_caches(call, words):
    cache, x = rapt.KvCache(2, 8), numbers(1, 2, 3, 8)
    cache.append(cache.add(), x, x)
    with pytest.raises(TypeError, match=words) as raised:
        call(cache, x)
    assert "incompatible function arguments" not in str(raised.value)


FLAGS = [
    ("attend: return_lse", lambda x, no: rapt.attend(x, x, x, return_lse=no)),
    ("attend: return_attended", lambda x, no: rapt.attend(x, x, x, return_attended=no)),
    ("dense_bias: fixed", lambda x, no: rapt.dense_bias(x, fixed=no)),
    ("attend_longformer: causal", lambda x, no: rapt.attend_longformer(x, x, x, causal=no)),
    ("attend_longformer: return_attended", lambda x, no: rapt.attend_longformer(x, x, x, return_attended=no)),
    ("attend_reformer_local: causal", lambda x, no: rapt.attend_reformer_local(x, x, x, causal=no)),
    ("attend_bigbird: return_attended", lambda x, no: rapt.attend_bigbird(x, x, x, return_attended=no)),
    ("attend_lsh: once", lambda x, no: rapt.attend_lsh(x, x, once=no)),
    ("sinusoidal: inclusive", lambda x, no: rapt.positions.sinusoidal(4, 8, like=x, inclusive=no)),
    ("axial_positions: column_major", lambda x, no: rapt.positions.axial_positions(x[0, 0], x[0, 0], 4, column_major=no)),
    ("scaled_dot_product_attention: is_causal",
     lambda x, no: rapt.scaled_dot_product_attention(x, x, x, is_causal=no)),
    ("flex_attention: return_lse", lambda x, no: rapt.flex_attention(x, x, x, return_lse=no)),
    ("flash_attn: causal", lambda x, no: flash_attn_func(x, x, x, causal=no)),
]


@pytest.mark.parametrize("name, call", FLAGS, ids=[name for name, _ in FLAGS])
def test_flags_are_true_or_false(name, call):
    x = numbers(1, 2, 4, 8)
    for given, shown in (("no", r"'no' \(str\)"), (0, r"0 \(int\)"), (None, "None")):
        with pytest.raises(TypeError, match=f"{name} is {shown}, expected True or False"):
            call(x, given)
    call(x, np.False_)


def test_rope_rotates_pairs():
    x = numbers(2, 3, 10, 8)
    rope = rapt.positions.Rope(8)
    angle = np.arange(5, 15)[:, None] * np.array(rope.frequencies)
    a, b = x[..., :4], x[..., 4:]
    exact = np.concatenate([a * np.cos(angle) - b * np.sin(angle),
                            b * np.cos(angle) + a * np.sin(angle)], -1)
    turned = rope.apply(x, positions=5)
    np.testing.assert_allclose(turned, exact, atol=1e-5)
    np.testing.assert_array_equal(rope.apply(x, positions=np.arange(5, 15)), turned)
    np.testing.assert_array_equal(
        rope.apply(x.swapaxes(1, 2), positions=5, layout="blhd").swapaxes(1, 2), turned)
    np.testing.assert_allclose(rope.apply_backward(turned, positions=5), x, atol=1e-5)


def test_every_scaling_is_there():
    p = rapt.positions
    for scaling in (p.LinearRope(2), p.NtkRope(2), p.DynamicNtkRope(2, 64), p.YarnRope(4), p.Llama3Rope(),
                    p.LongRope([1.0] * 4, [2.0] * 4, factor=2)):
        rope = p.Rope(8, scaling=scaling)
        assert len(rope.frequencies) == 4 and rope.for_length(100000).dim == 8
    assert p.Rope(8, xpos=512).for_queries().apply(numbers(1, 1, 3, 8)).shape == (1, 1, 3, 8)
    assert p.Rope(8, layout="interleaved").dim == 8
    grid = np.zeros((3, 1, 5), np.int64)
    x = numbers(1, 2, 5, 8)
    np.testing.assert_array_equal(p.Rope(8, sections=[2, 1, 1]).apply(x, grid), x)
    with pytest.raises(ValueError, match="layout"):
        p.Rope(8, layout="thirds")
    with pytest.raises(TypeError, match="scaling"):
        p.Rope(8, scaling=2.0)


def test_absolute_positions():
    p, like = rapt.positions, np.zeros(1, np.float32)
    rows = p.sinusoidal(5, 6, like=like)
    angle = np.arange(5)[:, None] * 10000.0 ** (-np.arange(3) / 3)
    np.testing.assert_allclose(rows[:, ::2], np.sin(angle), atol=1e-6)
    np.testing.assert_array_equal(p.sinusoidal(np.arange(5), 6, like=like), rows)
    table = numbers(12, 8)
    np.testing.assert_array_equal(p.learned_positions(table, 4, batch=2, offset=2)[1], table[2:6])
    a, b = numbers(3, 2), numbers(4, 6, seed=1)
    grid = p.axial_positions(a, b, 12)[0]
    np.testing.assert_array_equal(grid[7], np.concatenate([a[1], b[3]]))


def test_longformer_sees_what_its_classes_say():
    six = [numbers(1, 2, 40, 8, seed=i) for i in range(6)]
    out = rapt.attend_longformer(*six[:3], window=5)
    np.testing.assert_allclose(out, rapt.attend(*six[:3], "window(5, 5)"), atol=1e-6)
    classes = np.array([2] + 30 * [1] + 9 * [0])
    attended = rapt.attend_longformer(*six, window=5, classes=classes, return_attended=True)
    out = attended.out
    assert not out[:, :, 31:].any()
    np.testing.assert_allclose(out[:, :, :1], rapt.attend(six[3][:, :, :1], *six[4:], "keys(31)"),
                               atol=1e-6)
    found = rapt.attend_longformer_backward(out, *six, attended, window=5, classes=classes)
    assert [g.shape for g in found] == 6 * [(1, 2, 40, 8)]
    with pytest.raises(ValueError, match="classes hold 3"):
        rapt.attend_longformer(*six, classes=[3] * 40)


def test_hashed_attention_of_one_chunk_is_attention():
    x, v = numbers(1, 2, 30, 8), numbers(1, 2, 30, 8, seed=1)
    assert rapt.attend_lsh(x, v, chunk=64).shape == v.shape
    hashed = rapt.attend_lsh(numbers(1, 2, 300, 8), numbers(1, 2, 300, 8), chunk=32, rounds=2, buckets=[8])
    assert np.isfinite(hashed).all()
    assert rapt.lsh_buckets(16384, 64)
