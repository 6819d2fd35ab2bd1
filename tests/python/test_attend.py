"""attend from numpy, against its definition."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import definition
import rapt

PATTERNS = ["full", "causal", "causal(first)", "window(3, 1)", "causal & window(5, 0)",
            "window(2, 2) | tokens({0})", "causal | prefix(4)", "dilated(2, 3, 3)", "keys(5)",
            "window(-3, 7)", "causal & blocks(4, {{0}, {0, 1}, {}, {1, 3}})"]
ROUNDING = {"float32": 2.0**-23, "bfloat16": 2.0**-8, "float16": 2.0**-10}


def numbers(shape, dtype="float32", seed=0):
    drawn = np.random.default_rng(seed).standard_normal(shape)
    return drawn.astype(getattr(ml_dtypes, dtype, dtype))


def assert_close(given, exact, dtype="float32"):
    """Inputs are of order 1: a few roundings of the type."""
    np.testing.assert_allclose(np.asarray(given, np.float64), exact, rtol=0,
                               atol=16 * ROUNDING[dtype] * max(1.0, np.abs(exact).max(initial=0)))


shapes = st.fixed_dictionaries({
    "batch": st.integers(1, 2), "kv_heads": st.integers(1, 2), "group": st.integers(1, 3),
    "queries": st.integers(1, 70), "more_keys": st.integers(0, 70), "dim": st.integers(1, 33),
    "value_dim": st.integers(1, 33)})


def operands(s, dtype, strided, seed=0):
    """Strided: every second number of a larger array along tokens and heads."""
    def make(heads, tokens, dim, number):
        step = 2 if strided else 1
        whole = numbers((s["batch"], step * tokens, step * heads, dim), dtype, seed + number)
        return whole[:, ::step, ::step].swapaxes(1, 2)

    keys = s["queries"] + s["more_keys"]
    return (make(s["kv_heads"] * s["group"], s["queries"], s["dim"], 0),
            make(s["kv_heads"], keys, s["dim"], 1), make(s["kv_heads"], keys, s["value_dim"], 2))


def fits(pattern, queries, keys):
    try:
        rapt.Pattern(pattern).check(queries, keys)
    except ValueError:
        return False
    return True


@settings(max_examples=400, deadline=None)
@given(s=shapes, pattern=st.sampled_from(PATTERNS), strided=st.booleans(),
       dtype=st.sampled_from(["float32", "bfloat16", "float16"]))
def test_equals_the_definition(s, pattern, strided, dtype):
    q, k, v = operands(s, dtype, strided)
    assume(fits(pattern, q.shape[2], k.shape[2]))
    out, lse = rapt.attend(q, k, v, pattern, return_lse=True)
    exact, exact_lse = definition.attend(q, k, v, pattern)
    assert out.dtype == q.dtype and isinstance(out, np.ndarray)
    assert_close(out, exact, dtype)
    seen = ~np.isneginf(exact_lse)
    assert np.array_equal(np.isneginf(lse), ~seen)
    # Where bf16 is multiplied as it is, the sum is that of probabilities rounded to bf16, each by at
    # most u16 (1 + 2^-6): docs/exactness.md.
    pairs = dtype == "bfloat16" and rapt.Context().isa in ("AMX", "AVX512-BF16")
    np.testing.assert_allclose(lse[seen], exact_lse[seen], rtol=2**-20,
                               atol=(1 + 2**-6) * 2**-8 if pairs else 2**-19)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_gradients_equal_the_definition(pattern):
    q, k, v, dout = (numbers((2, 3, 37, 16), seed=i) for i in range(4))
    attended = rapt.attend(q, k, v, pattern, return_attended=True)
    found = rapt.attend_backward(dout, q, k, v, attended, pattern)
    for mine, exact in zip(found, definition.gradients(dout, q, k, v, pattern)):
        assert_close(mine, exact)
    assert found[3:] == (None,) * 7


def test_scores_equal_the_definition():
    q, k, v = (numbers((2, 3, 20, 8), seed=i) for i in range(3))
    slopes, sinks = np.array([0.5, 0.25, 0.125]), numbers(3, seed=7)
    dense = numbers((1, 3, 20, 20), seed=8)
    distance = np.abs(np.subtract.outer(np.arange(20), np.arange(20)))
    out, lse = rapt.attend(q, k, v, "causal", scale=0.7, softcap=3.0, sinks=sinks, return_lse=True,
                           bias=rapt.alibi(slopes) + rapt.dense_bias(dense))
    exact = definition.attend(q, k, v, "causal", scale=0.7, softcap=3.0, sinks=sinks,
                              bias=dense - slopes[:, None, None] * distance)
    assert_close(out, exact[0])
    assert_close(lse, exact[1])


def test_layouts_are_the_same_call():
    q, k, v = (numbers((2, 3, 20, 8), seed=i) for i in range(3))
    swapped = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v)]
    attended = rapt.attend(*swapped, "causal", layout="blhd", return_attended=True)
    assert attended.out.flags.c_contiguous
    straight = rapt.attend(q, k, v, "causal", return_attended=True)
    assert np.array_equal(attended.out.swapaxes(1, 2), straight.out)
    found = rapt.attend_backward(attended.out, *swapped, attended, "causal", layout="blhd")
    expected = rapt.attend_backward(straight.out, q, k, v, straight, "causal")
    for mine, theirs in zip(found[:3], expected[:3]):
        assert np.array_equal(mine.swapaxes(1, 2), theirs)


def test_a_plan_is_a_pattern():
    q = numbers((1, 2, 130, 8))
    plan = rapt.Plan("causal & window(16, 0)", 130)
    assert np.array_equal(rapt.attend(q, q, q, plan), rapt.attend(q, q, q, plan.pattern))
    with pytest.raises(ValueError, match="plan"):
        rapt.attend(q[:, :, :9], q[:, :, :9], q[:, :, :9], plan)


def test_statistics_come_from_the_same_pass():
    q = np.zeros((1, 2, 6, 8), np.float32)
    out, stats = rapt.attend(q, q, q, "causal", return_stats=True)
    assert isinstance(stats, rapt.Stats)
    np.testing.assert_allclose(stats.entropy[0, 0], np.log(np.arange(1, 7)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(stats.largest[0, 1], 1 / np.arange(1, 7), rtol=1e-6)


def test_dropout_wants_a_seed_and_repeats_itself():
    q = numbers((1, 2, 40, 8))
    with pytest.raises(ValueError, match="seed"):
        rapt.attend(q, q, q, dropout=0.5)
    once = rapt.attend(q, q, q, dropout=0.5, seed=3)
    assert np.array_equal(once, rapt.attend(q, q, q, dropout=0.5, seed=3))
    assert not np.array_equal(once, rapt.attend(q, q, q, dropout=0.5, seed=4))


def test_a_context_that_is_none_is_named():
    q = numbers((1, 1, 4, 8))
    with pytest.raises(TypeError, match="context is 2, expected None or a rapt.Context"):
        rapt.attend(q, q, q, context=2)


def test_scales_have_names():
    q = numbers((1, 2, 20, 16))
    assert np.array_equal(rapt.attend(q, q, q, scale=1 / 16), rapt.attend(q, q, q, scale="inverse_dim"))
    assert np.array_equal(rapt.attend(q, q, q, scale=1), rapt.attend(q, q, q, scale="none"))
    assert np.array_equal(rapt.attend(q, q, q, scale="log_n"),
                          rapt.attend(q, q, q, scale=rapt.Scale.log_n(512)))


def test_explains_itself():
    text = rapt.explain((1, 8, 128, 64), (1, 8, 128, 64), (1, 8, 128, 64), "causal")
    assert rapt.Context().isa in text
