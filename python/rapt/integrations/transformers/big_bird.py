"""BigBird: its block-sparse attention as a pattern of blocks."""

from __future__ import annotations

import math
import types

import numpy as np
import torch
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention

import rapt


def replace(model) -> int:
    """How many modules have rapt's attention now. A model short of blocks switches to dense
    attention by itself and makes new modules for it; those are Transformers' own."""
    found = [m for m in model.modules() if isinstance(m, BigBirdBlockSparseAttention)]
    for module in found:
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


def _visits(drawn, blocks):
    """For each block between the first and the last, every key block it meets, with repeats."""
    return [sorted([*{0, i - 1, i, i + 1, blocks - 1}, *(int(r) for r in drawn[i - 1])])
            for i in range(1, blocks - 1)]


def _repeats(visits, blocks):
    """How often each key block is met; a block that only some rows meet twice has no such number."""
    counts = [max(row.count(key) for row in visits) for key in range(blocks)]
    alike = all(row.count(key) in (0, counts[key]) for row in visits for key in range(blocks))
    if not alike:
        raise ValueError("accelerate: a random block of BigBird repeats one of the window for some "
                         "rows only, expected none")
    return counts


def _attention(self, q, k, v, band_mask, from_mask, to_mask, from_blocked_mask, to_blocked_mask,
               heads, random, head_size, size, to_size, batch, tokens, to_tokens, seed,
               plan_from_length, plan_num_rand_blocks):
    """[batch, tokens, heads, head_size], None: weights are never stored."""
    blocks = tokens // size
    drawn = _random_blocks(self, blocks, heads, random, size, tokens, seed)
    padding = (1.0 - to_mask.float()) * -10000.0  # [batch, 1, 1, tokens]
    visits = [_visits(of_head, blocks) for of_head in drawn]
    if all(x == visits[0] for x in visits):
        middle = _middle(q, k, v, visits[0], blocks, size, padding)
    else:
        middle = torch.cat([_middle(q[:, h:h + 1], k[:, h:h + 1], v[:, h:h + 1], visits[h], blocks,
                                    size, padding) for h in range(heads)], 2)
    ends = torch.cat([q[:, :, :size], q[:, :, -size:]], 2)
    first, last = _call(ends, k, v, None, padding).split(size, 1)
    out = torch.cat([first, middle[:, size:-size], last], 1)
    return out * from_mask.transpose(1, 2), None


def _middle(q, k, v, visits, blocks, size, padding):
    """All rows; those of the first and last block are computed elsewhere and see little here."""
    counts = torch.tensor(_repeats(visits, blocks), dtype=torch.float32)
    # A key met n times weighs n times as much: its logit grows by ln n.
    extra = counts.clamp(min=1).log().repeat_interleave(size)
    table = [[0], *(sorted(set(row)) for row in visits), [0]]
    return _call(q, k, v, rapt.blocks(size, table), padding + extra)


def _call(q, k, v, pattern, numbers):
    return rapt.attend(*(x.transpose(1, 2) for x in (q, k, v)), pattern, layout="blhd",
                       scale=1 / math.sqrt(q.shape[3]), bias=rapt.dense_bias(numbers, fixed=True))
