"""Exact attention on CPUs for any attention pattern, forward and backward, in linear memory.

>>> import numpy as np, rapt
>>> x = np.random.default_rng(0).standard_normal((1, 8, 256, 64), dtype=np.float32)
>>> y = rapt.attend(x, x, x, rapt.window(128, 0), bias=rapt.alibi(8))
>>> y.shape
(1, 8, 256, 64)

Arrays are numpy's, PyTorch's or anything with the buffer protocol or DLPack; results are from the same
library. PyTorch tensors that require gradients get them.
"""

from rapt._core import (Context, Pattern, Scale, lsh_buckets, mask, supported_isas, t5_bucket,
                        usable_cpus)
from rapt._core import version as _version
from rapt import flex, lab, positions, typing
from rapt._renamed import refuse_attributes as _refuse_attributes
from rapt._torch.import_hook import register_operators as _register_operators
from rapt.attention.attend import attend, attend_backward, explain
from rapt.attention.bias import (Bias, alibi, dense_bias, kerple_log, kerple_power, relative_keys,
                                 t5_bias)
from rapt.attention.bigbird import attend_bigbird, attend_bigbird_backward
from rapt.attention.cache import KvCache
from rapt.attention.longformer import attend_longformer, attend_longformer_backward
from rapt.attention.options import Attention, BigBird, Longformer, Lsh, ReformerLocal
from rapt.attention.patterns import (alibi_slopes, bigbird, blocks, causal, chunks, dilated,
                                     documents, full, keys, lsh, prefix, tokens, window)
from rapt.attention.plan import Plan
from rapt.attention.reformer import (LshRecall, attend_lsh, attend_reformer_local,
                                     attend_reformer_local_backward, lsh_recall)
from rapt.attention.results import Attended, Gradients, LongformerGradients, Rows, Stats
from rapt.config import show_config
from rapt.flex import BlockMask, and_masks, create_block_mask, flex_attention, or_masks
from rapt.head_report import HeadReport, heads
from rapt.model import Generated, GenerateOptions, Model, Tokenizer, load
from rapt.sdpa import scaled_dot_product_attention

__version__ = _version()

__all__ = [
    "Attended", "Attention", "Bias", "BigBird", "BlockMask", "Context", "Generated", "GenerateOptions",
    "Gradients", "HeadReport", "KvCache", "Longformer", "LongformerGradients", "Lsh", "LshRecall", "Model",
    "Pattern", "Plan", "ReformerLocal", "Rows", "Scale", "Stats", "Tokenizer", "alibi",
    "alibi_slopes", "and_masks", "attend", "attend_backward", "attend_bigbird", "attend_bigbird_backward",
    "attend_longformer", "attend_longformer_backward", "attend_lsh", "attend_reformer_local",
    "attend_reformer_local_backward", "bigbird", "blocks", "causal", "chunks", "create_block_mask",
    "dense_bias", "dilated", "documents", "explain", "flex", "flex_attention", "full", "heads", "kerple_log",
    "kerple_power", "keys", "lab", "load", "lsh", "lsh_buckets", "lsh_recall", "mask", "or_masks", "positions",
    "prefix", "relative_keys", "scaled_dot_product_attention", "show_config", "supported_isas", "t5_bias",
    "t5_bucket", "tokens", "typing", "usable_cpus", "window",
]

_register_operators()

_refuse_attributes(globals(), longformer="attend_longformer", longformer_backward="attend_longformer_backward",
                   local="attend_reformer_local", local_backward="attend_reformer_local_backward",
                   lsh_pattern="lsh", inspect="heads", **{"Health": "HeadReport"})
