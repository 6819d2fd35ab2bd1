"""BigBird's and Reformer's local attention, hashed caches and how much hashing finds."""

import numpy as np
import pytest

import definition
import rapt


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def three(tokens, heads=2, batch=1):
    return [numbers(batch, heads, tokens, 8, seed=i) for i in range(3)]


RANDOM = [[], [4], [5, 0], [], [1]]


@pytest.mark.parametrize("layout", ["bhld", "blhd"])
@pytest.mark.parametrize("tokens", [1, 8, 50, 64])
def test_bigbird_is_its_pattern(tokens, layout):
    random = [[x for x in row if x < -(-tokens // 8)] for row in RANDOM[:-(-tokens // 8)]]
    pattern = rapt.bigbird(tokens, block=8, random=random)
    assert rapt.Pattern(str(pattern)) == pattern
    x = three(tokens)
    swap = (lambda y: y.swapaxes(1, 2)) if layout == "blhd" else (lambda y: y)
    exact, exact_lse = definition.attend(*x, pattern)
    how = {"block": 8, "random": random, "layout": layout}
    attended = rapt.attend_bigbird(*map(swap, x), **how, return_attended=True)
    np.testing.assert_allclose(swap(attended.out), exact, atol=1e-5)
    np.testing.assert_allclose(attended.lse, exact_lse, atol=1e-5)
    dout = numbers(*exact.shape, seed=7)
    g = rapt.attend_bigbird_backward(swap(dout), *map(swap, x), attended, **how)
    for found, expected in zip(g[:3], definition.gradients(dout, *x, pattern)):
        np.testing.assert_allclose(swap(found), expected, atol=1e-5)


def test_bigbird_takes_tables_of_each_head_and_padding():
    x = three(48)
    tables = np.full((2, 6, 2), -1)
    tables[0, 2, 0], tables[1, 1] = 5, [3, 4]
    out = rapt.attend_bigbird(*x, block=8, random=tables)
    for head in range(2):
        pattern = rapt.bigbird(48, block=8, random=tables, head=head)
        one = [y[:, head:head + 1] for y in x]
        np.testing.assert_allclose(out[:, head:head + 1], definition.attend(*one, pattern)[0], atol=1e-5)
    real = np.arange(48) < 41
    padded = rapt.attend_bigbird(*x, block=8, attention_mask=real)
    np.testing.assert_array_equal(padded, rapt.attend_bigbird(*x, block=8, attention_mask=real.astype(int)))
    assert not padded[:, :, 41:].any()
    with pytest.raises(ValueError, match="random block 9"):
        rapt.attend_bigbird(*x, block=8, random=[[9]])
    with pytest.raises(ValueError, match="random has 1 axes"):
        rapt.attend_bigbird(*x, block=8, random=np.arange(3))
    with pytest.raises(TypeError, match="random is a str"):
        rapt.bigbird(48, random="all")
    with pytest.raises(ValueError, match="numbers in attention_mask"):
        rapt.attend_bigbird(*x, block=8, attention_mask=[1, 0])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tokens", [10, 50])
def test_local_attention_is_a_pattern_of_chunks(tokens, causal):
    pattern = rapt.chunks(16, 1, 0) if tokens > 16 else rapt.full()
    pattern = pattern & rapt.causal() if causal else pattern
    x = three(tokens)
    exact, exact_lse = definition.attend(*x, pattern)
    how = {"chunk": 16, "causal": causal}
    attended = rapt.attend_reformer_local(*x, **how, return_attended=True)
    np.testing.assert_allclose(attended.out, exact, atol=1e-5)
    np.testing.assert_allclose(attended.lse, exact_lse, atol=1e-5)
    g = rapt.attend_reformer_local_backward(exact.astype(np.float32), *x, attended, **how)
    for found, expected in zip(g[:3], definition.gradients(exact, *x, pattern)):
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_local_attention_without_a_key():
    x, real = three(32), np.arange(32) >= 16
    out = rapt.attend_reformer_local(*x, chunk=8, attention_mask=real)
    assert not out[:, :, 8:16].any() and out[:, :, 16:].any()
    summed = rapt.attend_reformer_local(*x, chunk=8, attention_mask=real, empty_rows="sum")
    np.testing.assert_allclose(summed[:, :, 8], x[2][:, :, :16].sum(2), atol=1e-5)
    with pytest.raises(ValueError, match="empty_rows"):
        rapt.attend_reformer_local(*x, empty_rows="ones")
    with pytest.raises(ValueError, match="dropout without a seed"):
        rapt.attend_reformer_local(*x, dropout=0.1)


def test_a_hashed_cache_answers_as_one_call_does():
    x, v = numbers(1, 2, 200, 8), numbers(1, 2, 200, 8, seed=1)
    leaf = rapt.lsh(16, 2, [8], seed=3)
    pattern = leaf & rapt.causal()
    for rotations in (None, numbers(2, 8, 2, 4, seed=5)):
        cache = rapt.KvCache(kv_heads=2, dim=8, lsh=leaf, rotations=rotations)
        assert 'lsh="lsh(16, 2, {8}' in repr(cache)
        sequence = cache.add()
        cache.append(sequence, x[:, :, :190], v[:, :, :190])
        for at in range(190, 200):
            cache.append(sequence, x[:, :, at:at + 1], v[:, :, at:at + 1])
            found = cache.attend(x[:, :, at:at + 1], [sequence], pattern)
            so_far = x[:, :, :at + 1]
            exact = rapt.attend(so_far, so_far, v[:, :, :at + 1], pattern, rotations=rotations)
            np.testing.assert_allclose(found, exact[:, :, -1:], atol=1e-5)
    cache.append_padding(cache.add(), 3)
    with pytest.raises(ValueError, match="without an lsh leaf"):
        rapt.KvCache(kv_heads=2, dim=8, lsh="causal")
    with pytest.raises(ValueError, match="rotations without lsh"):
        rapt.KvCache(kv_heads=2, dim=8, rotations=numbers(2, 8, 2, 4))


def test_more_rounds_find_more():
    x = numbers(1, 2, 512, 16)
    few, many = (rapt.lsh_recall(x, x, rapt.lsh(32, rounds, [16]) & rapt.causal(), top=8)
                 for rounds in (1, 8))
    assert 0 < few.keys < few.top < many.top <= 1 and few.mass < many.mass
    assert 0 < few.queries <= 2 * 256  # the first sees only itself
    with pytest.raises(ValueError):
        rapt.lsh_recall(x, x, "causal")
