#!/usr/bin/env python3
"""Attention on numpy arrays: a pattern and its picture, forward and backward compared with plain numpy,
and decoding with a KV cache.

    python3 examples/numpy_attention.py
"""

import sys

import numpy as np

import rapt

HEADS, TOKENS, DIM, WINDOW = 8, 512, 64, 128


def dense_attention(q, k, v):
    """The same attention from a mask, in float64."""
    distance = np.arange(TOKENS)[:, None] - np.arange(TOKENS)
    visible = (distance >= 0) & (distance < WINDOW)
    logits = np.where(visible, q @ k.swapaxes(-1, -2) / np.sqrt(DIM), -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def slope(dout, q, k, v, direction, step=1e-4):
    """How fast sum(dout * out) changes when q moves in a direction, from two outputs."""
    ahead, behind = (dense_attention(q + sign * step * direction, k, v) for sign in (1, -1))
    return np.sum(dout * (ahead - behind)) / (2 * step)


def main():
    rng = np.random.default_rng(0)
    q, k, v, dout, direction = rng.standard_normal((5, 1, HEADS, TOKENS, DIM), dtype=np.float32)
    pattern = rapt.window(WINDOW - 1, 0)  # or the text "window(127, 0)"
    print(rapt.Plan(pattern, TOKENS))

    attended = rapt.attend(q, k, v, pattern, return_attended=True)
    wide = [x.astype(np.float64) for x in (q, k, v)]
    difference = np.abs(attended.out - dense_attention(*wide)).max()
    print(f"forward: largest difference from numpy {difference:.1e}")

    gradients = rapt.attend_backward(dout, q, k, v, attended, pattern)
    analytic, numeric = np.sum(gradients.dq * direction), slope(dout, *wide, direction)
    print(f"backward: slope {analytic:.4f}, by finite differences {numeric:.4f}")

    # The first half is a prompt; the rest comes token by token, as when a model writes.
    cache, half = rapt.KvCache(kv_heads=HEADS, dim=DIM), TOKENS // 2
    sequence = cache.add()
    cache.append(sequence, k[:, :, :half], v[:, :, :half])
    decoded = []
    for token in range(half, TOKENS):
        new = slice(token, token + 1)
        cache.append(sequence, k[:, :, new], v[:, :, new])
        decoded.append(cache.attend(q[:, :, new], [sequence], pattern))
    drift = np.abs(np.concatenate(decoded, axis=2) - attended.out[:, :, half:]).max()
    print(f"decoding: {len(decoded)} tokens, largest difference from one pass {drift:.1e}")
    return 0 if difference < 1e-5 and abs(analytic - numeric) < 1e-2 and drift < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
