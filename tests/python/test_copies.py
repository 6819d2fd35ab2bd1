"""Which values can be copied and pickled, and what the others say."""

import copy
import pickle

import numpy as np
import pytest

import rapt
from rapt.positions import DynamicNtkRope, LinearRope, Llama3Rope, LongRope, NtkRope, Rope, YarnRope

X = np.random.default_rng(0).standard_normal((1, 2, 12, 8), dtype=np.float32)
COPIES = {"copy": copy.copy, "deepcopy": copy.deepcopy, **{
    f"pickle {p}": lambda x, p=p: pickle.loads(pickle.dumps(x, p)) for p in range(2, pickle.HIGHEST_PROTOCOL + 1)}}

ROPES = {
    "plain": Rope(8),
    "named arguments": Rope(dim=8, base=500.0, layout="interleaved", rotated=4),
    "linear": Rope(8, scaling=LinearRope(4.0)),
    "ntk": Rope(8, scaling=NtkRope(2.0)),
    "dynamic, at a length": Rope(8, scaling=DynamicNtkRope(2.0, 4)).for_length(100),
    "yarn": Rope(8, scaling=YarnRope(4.0, 16, attention_factor=1.25)),
    "llama3": Rope(8, scaling=Llama3Rope(8.0, 16)),
    "long, at a length": Rope(8, scaling=LongRope([1.0] * 4, [2.0, 3.0, 4.0, 5.0], 16, 4.0)).for_length(100),
    "xpos, of keys": Rope(8, xpos=512.0).for_keys(),
    "of another": Rope(Rope(8, scaling=LinearRope(4.0))),
    "numbers of numpy": Rope(np.int64(8), sections=np.array([2, 2])),
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("name", ROPES)
def test_a_copied_rope_rotates_equally(name, how):
    rope, positions = ROPES[name], np.arange(24).reshape(2, 1, 12) if name == "numbers of numpy" else 3
    other = COPIES[how](rope)
    assert type(other) is Rope
    assert np.array_equal(other.apply(X, positions), rope.apply(X, positions))


@pytest.mark.parametrize("name", ROPES)
def test_a_printed_rope_rotates_equally(name):
    rope, positions = ROPES[name], np.arange(24).reshape(2, 1, 12) if name == "numbers of numpy" else 3
    assert np.array_equal(Rope._from_text(rope._text()).apply(X, positions), rope.apply(X, positions))


VALUES = {
    "plan": (rapt.Plan("causal & window(3, 0)", 12), lambda p: (str(p.pattern), p.queries, p.keys, p.pairs)),
    "plan of fewer queries": (rapt.Plan("causal", 5, 12), lambda p: (str(p.pattern), p.queries, p.keys, p.pairs)),
    "pattern": (rapt.causal() & rapt.mask(X[0, 0] > 0), str),
    "scale": (rapt.Scale.log_n(64), lambda s: (s.rule, s.number)),
    "context": (rapt.Context(1, "scalar"), lambda c: (c.threads, c.isa)),
    "default context": (rapt.Context(), lambda c: (c.threads, c.isa)),
    "bias": (rapt.alibi(2) + rapt.t5_bias(np.ones((32, 2), np.float32)),
             lambda b: (b.alibi, b.table[0].tolist(), b.table[1:], b.keys)),
    "block mask": (rapt.create_block_mask(rapt.flex.causal, None, None, 12, 12), lambda m: (m.patterns, m.shape)),
    "mask": (rapt.or_masks(rapt.flex.prefix_lm(3), rapt.flex.document_mask([4, 8])),
             lambda m: (str(m.pattern), m(0, 0, np.arange(12)[:, None], np.arange(12)).tolist())),
    "score mod": (rapt.flex.softcap(5.0), lambda s: s),
    "stats": (rapt.Stats(1, 2, 3, 4, 5, 6), lambda s: s),
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("name", VALUES)
def test_a_copied_value_says_the_same(name, how):
    value, told = VALUES[name]
    assert told(COPIES[how](value)) == told(value)


@pytest.mark.parametrize("how", COPIES)
def test_a_cache_says_why_it_cannot_be_copied(how):
    with pytest.raises(TypeError, match="KvCache: a cache cannot be copied or pickled"):
        COPIES[how](rapt.KvCache(2, 8))
