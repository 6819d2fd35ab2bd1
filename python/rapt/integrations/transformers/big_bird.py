"""BigBird and BigBird-Pegasus: block-sparse attention in one call."""

from __future__ import annotations

import math
import types
from typing import Any

import numpy as np
import torch
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention
from transformers.models.bigbird_pegasus.modeling_bigbird_pegasus import (
    BigBirdPegasusBlockSparseAttention)

import rapt
from rapt.integrations.transformers import fallback
from rapt.integrations.transformers.masks import padding_mask
from rapt.integrations.transformers.weights import wants_weights


def replace(model: Any) -> int:
    """Replaces the attention modules and returns how many there are. For short inputs a model
    switches to dense attention and makes new modules, which stay Transformers' own."""
    found = [m for m in model.modules() if isinstance(m, (BigBirdBlockSparseAttention,
                                                          BigBirdPegasusBlockSparseAttention))]
    for module in found:
        if not hasattr(module, "attention_of_transformers"):
            module.attention_of_transformers = module.bigbird_block_sparse_attention
            module.bigbird_block_sparse_attention = types.MethodType(_attention, module)
    return len(found)


def _random_blocks(self, blocks, heads, random, size, tokens, seed):
    """[heads][blocks - 2][random], drawn as Transformers draws them."""
    if self.training:
        np.random.seed(seed)
    if tokens in (1024, 3072, 4096):
        return [self._bigbird_block_rand_mask(self.max_seqlen, self.max_seqlen, size, size, random,
                                              last_idx=1024)[:blocks - 2] for _ in range(heads)]
    lengths, counts = self._get_rand_attn_plan(tokens, size, random)
    return self._bigbird_block_rand_mask_with_head(
        from_seq_length=tokens, to_seq_length=tokens, from_block_size=size, to_block_size=size,
        num_heads=heads, plan_from_length=lengths, plan_num_rand_blocks=counts)


def _repeat(drawn, blocks):
    """Whether a row of a head draws a block twice, or one that it sees anyway."""
    rows = ((i, [int(x) for x in row]) for table in drawn for i, row in enumerate(table, 1))
    return any(len({0, i - 1, i, i + 1, blocks - 1, *row}) < len({0, i - 1, i, i + 1, blocks - 1})
               + len(row) for i, row in rows)


def _attention(self, q, k, v, band_mask, from_mask, to_mask, from_blocked_mask, to_blocked_mask,
               heads, random, head_size, size, to_size, batch, tokens, to_tokens, seed, **plan):
    """[batch, tokens, heads, head_size], and the weights if they are asked for, else None."""
    def own(reason):
        fallback.warn(self, reason)
        return self.attention_of_transformers(
            q, k, v, band_mask, from_mask, to_mask, from_blocked_mask, to_blocked_mask, heads,
            random, head_size, size, to_size, batch, tokens, to_tokens, seed, **plan)

    if wants_weights(self, None):
        return own("attention weights are asked for")
    how = {"first_block_counts": 1 + random}  # at inference every row draws the first block
    if self.training:
        drawn = _random_blocks(self, tokens // size, heads, random, size, tokens, seed)
        if _repeat(drawn, tokens // size):  # Transformers counts it twice, and only in that row
            return own("a row draws a block twice, or one that it sees anyway")
        # From the second block on; the first sees all.
        how = {"random": torch.nn.functional.pad(
            torch.tensor(np.array(drawn), dtype=torch.long), (0, 0, 1, 0), value=-1)}
    out = rapt.attend_bigbird(*(x.transpose(1, 2) for x in (q, k, v)), block=size,
                              attention_mask=padding_mask(to_mask.reshape(batch, tokens)),
                              scale=1 / math.sqrt(head_size), layout="blhd", **how)
    return out, None
