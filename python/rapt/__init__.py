"""Exact attention on CPUs for any pattern of who sees whom, forward and backward, in linear memory.

>>> import numpy as np, rapt
>>> x = np.random.default_rng(0).standard_normal((1, 8, 256, 64), dtype=np.float32)
>>> y = rapt.attend(x, x, x, rapt.causal() & rapt.window(128, 0), bias=rapt.alibi(8))
>>> y.shape
(1, 8, 256, 64)

Arrays are numpy's, PyTorch's or anything with the buffer protocol or DLPack; results are of the same
library. PyTorch tensors that require gradients get them.
"""

from rapt._core import (Context, Pattern, Scale, lsh_buckets, mask, supported_isas, t5_bucket,
                        usable_cpus)
from rapt._core import version as _version
from rapt.patterns import (alibi_slopes, bigbird, blocks, causal, chunks, dilated, documents, full,
                           keys, lsh_pattern, prefix, tokens, window)
from rapt import _torch_import, flex, lab, positions
from rapt.attention import Gradients, Stats, attend, attend_backward, explain
from rapt.bias import (Bias, alibi, dense_bias, kerple_log, kerple_power, relative_keys, t5_bias)
from rapt.cache import KvCache
from rapt.config import show_config
from rapt.flex import BlockMask, and_masks, create_block_mask, flex_attention, or_masks
from rapt.health import Health, inspect
from rapt._blocks import attend_bigbird, attend_bigbird_backward, local, local_backward
from rapt._longformer import longformer, longformer_backward
from rapt.plan import Plan
from rapt.model import Generated, Model, Tokenizer, load
from rapt.reformer import LshRecall, lsh, lsh_recall
from rapt.sdpa import scaled_dot_product_attention

__version__ = _version()

__all__ = [
    "Bias", "BlockMask", "Context", "Generated", "Gradients", "Health", "KvCache", "LshRecall", "Model", "Pattern",
    "Plan", "Scale", "Stats", "Tokenizer", "alibi", "alibi_slopes", "and_masks", "attend", "attend_backward",
    "attend_bigbird", "attend_bigbird_backward", "bigbird", "blocks", "causal", "chunks", "create_block_mask",
    "dense_bias", "dilated", "documents", "explain", "flex", "flex_attention", "full", "inspect", "kerple_log",
    "kerple_power", "keys", "lab", "load", "local", "local_backward", "longformer", "longformer_backward", "lsh",
    "lsh_buckets", "lsh_pattern", "lsh_recall", "mask", "or_masks", "positions", "prefix",
    "relative_keys", "scaled_dot_product_attention", "show_config", "supported_isas", "t5_bias",
    "t5_bucket", "tokens", "usable_cpus", "window",
]

_torch_import.register_operators()
