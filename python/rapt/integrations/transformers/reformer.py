"""Reformer: hashed and local attention."""

from __future__ import annotations

import types
from typing import Any

import torch
from transformers.models.reformer.modeling_reformer import (LocalSelfAttention,
                                                            LocalSelfAttentionOutput,
                                                            LSHSelfAttention,
                                                            LSHSelfAttentionOutput)

import rapt
from rapt.integrations.transformers import fallback
from rapt.integrations.transformers.masks import item_patterns, padding_mask


def replace(model: Any) -> int:
    """Replaces the attention modules and returns how many there are."""
    count = 0
    for module in model.modules():
        forward = {LSHSelfAttention: _hashed, LocalSelfAttention: _local}.get(type(module))
        if forward is None:
            continue
        count += 1
        if not hasattr(module, "forward_of_transformers"):
            module.forward_of_transformers = module.forward
            module.forward = types.MethodType(forward, module)
    return count


def _by_item(operands, pattern, attention_mask, how):
    """One call for all items, or one for each if their padding differs."""
    q, k, v = operands
    padded = item_patterns(attention_mask)
    if padded is None:
        return rapt.attend(q, k, v, pattern, layout="blhd", **how)
    return torch.cat([rapt.attend(q[i:i + 1], k[i:i + 1], v[i:i + 1], pattern & keys, layout="blhd", **how)
                      for i, keys in enumerate(padded)])


def _left_to_transformers(self, past, output_attentions) -> str:
    """Why this call must run Transformers' own code; empty if it need not."""
    if past is not None and len(past) > self.layer_idx:
        return "its cache holds buckets and hidden states, not keys"
    return "attention weights are asked for" if output_attentions else ""


@torch.compiler.disable  # the values of the padding decide the patterns
def _hashed(self, hidden_states, attention_mask=None, num_hashes=None, buckets=None,
            past_buckets_states=None, use_cache=False, output_attentions=False, **kwargs):
    reason = _left_to_transformers(self, past_buckets_states, output_attentions)
    if not reason and item_patterns(attention_mask) == []:
        reason = "padding that is not at the end alone"
    if reason:
        fallback.warn(self, reason)
        return self.forward_of_transformers(
            hidden_states, attention_mask, num_hashes, buckets, past_buckets_states, use_cache,
            output_attentions, **kwargs)
    rounds = num_hashes or self.num_hashes
    shape = (*hidden_states.shape[:2], self.num_attention_heads, self.attention_head_size)
    qk, v = self.query_key(hidden_states).view(shape), self.value(hidden_states).view(shape)
    how = {"dropout": self.dropout if self.training else 0.0}
    factors, found = [2], None
    if shape[1] > self.chunk_length:
        if self.num_buckets is None:
            self._set_num_buckets(shape[1])
        factors = [self.num_buckets] if isinstance(self.num_buckets, int) else list(self.num_buckets)
        if use_cache:
            found = _buckets_for_the_cache(self, qk, rounds, attention_mask)
        # Drawn as Transformers does: the reversible backward pass sets the seed and draws them again.
        if self.hash_seed is not None:
            torch.manual_seed(self.hash_seed)
        how["rotations"] = torch.randn(shape[2], shape[3], rounds, sum(factors) // 2,
                                       dtype=qk.dtype)
    pattern = rapt.lsh(self.chunk_length, rounds, factors, 0, self.num_chunks_before,
                       self.num_chunks_after)
    if self.is_decoder:
        pattern = pattern & rapt.causal()
    out = _by_item((qk, qk, v), pattern, attention_mask, how)
    return LSHSelfAttentionOutput(out.flatten(2), (), found)


def _buckets_for_the_cache(self, qk, rounds, attention_mask):
    """[batch, heads, rounds, tokens], with the rotations that are drawn next."""
    state = torch.get_rng_state()
    found = self._hash_vectors(qk.transpose(1, 2), rounds, attention_mask)
    torch.set_rng_state(state)
    return found.view(qk.shape[0], qk.shape[2], rounds, -1)


def _local(self, hidden_states, attention_mask=None, past_buckets_states=None, use_cache=False,
           output_attentions=False, **kwargs):
    reason = _left_to_transformers(self, past_buckets_states, output_attentions)
    if reason:
        fallback.warn(self, reason)
        return self.forward_of_transformers(hidden_states, attention_mask, past_buckets_states,
                                            use_cache, output_attentions, **kwargs)
    shape = (*hidden_states.shape[:2], self.num_attention_heads, self.attention_head_size)
    operands = [project(hidden_states).view(shape) for project in (self.query, self.key, self.value)]
    dropout = self.dropout if self.training else 0.0
    out = rapt.attend_reformer_local(
        *operands, chunk=self.chunk_length, before=self.num_chunks_before, after=self.num_chunks_after,
        causal=self.is_decoder, attention_mask=padding_mask(attention_mask), empty_rows="zeros" if dropout else "sum",
        dropout=dropout, layout="blhd")
    return LocalSelfAttentionOutput(out.flatten(2), ())
