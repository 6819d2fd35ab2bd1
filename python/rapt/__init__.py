"""Exact attention on CPUs for any pattern of who sees whom, forward and backward, in linear memory.

>>> import numpy as np, rapt
>>> x = np.random.default_rng(0).standard_normal((1, 8, 256, 64), dtype=np.float32)
>>> y = rapt.attend(x, x, x, rapt.causal() & rapt.window(128, 0), bias=rapt.alibi(8))
>>> y.shape
(1, 8, 256, 64)

Arrays are numpy's, PyTorch's or anything with the buffer protocol or DLPack; results are of the same
library. PyTorch tensors that require gradients get them.
"""

from rapt._core import (Context, Pattern, Scale, alibi_slopes, blocks, causal, chunks, dilated,
                        documents, full, keys, lsh_buckets, lsh_pattern, mask, prefix,
                        supported_isas, t5_bucket, tokens, usable_cpus, window)
from rapt._core import version as _version
from rapt import positions
from rapt.attention import Gradients, Stats, attend, attend_backward, explain
from rapt.bias import (Bias, alibi, dense_bias, kerple_log, kerple_power, relative_keys, t5_bias)
from rapt.cache import KvCache
from rapt.config import show_config
from rapt.longformer import longformer, longformer_backward
from rapt.plan import Plan
from rapt.reformer import lsh

__version__ = _version()

__all__ = [
    "Bias", "Context", "Gradients", "KvCache", "Pattern", "Plan", "Scale", "Stats", "alibi",
    "alibi_slopes", "attend", "attend_backward", "blocks", "causal", "chunks", "dense_bias",
    "dilated", "documents", "explain", "full", "kerple_log", "kerple_power", "keys", "longformer",
    "longformer_backward", "lsh", "lsh_buckets", "lsh_pattern", "mask", "positions", "prefix",
    "relative_keys", "show_config", "supported_isas", "t5_bias", "t5_bucket", "tokens",
    "usable_cpus", "window",
]
