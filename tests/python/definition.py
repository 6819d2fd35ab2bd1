"""Attention as it is defined, in f64 numpy: small, slow, and on purpose not like rapt."""

import numpy as np

import rapt


def visible(pattern, queries, keys):
    """[queries, keys], true where a query may see a key."""
    pattern = rapt.Pattern(pattern)
    seen = np.zeros((queries, keys), bool)
    for query in range(queries):
        for begin, end in pattern.keys_of(query, queries, keys):
            seen[query, begin:end] = True
    return seen


def probabilities(q, k, pattern, scale=None, softcap=0.0, bias=0.0, sinks=None):
    q, k = np.asarray(q, np.float64), np.asarray(k, np.float64)
    heads, queries, keys = q.shape[1], q.shape[2], k.shape[2]
    k = np.repeat(k, heads // k.shape[1], axis=1)
    z = q @ k.swapaxes(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    if softcap:
        z = softcap * np.tanh(z / softcap)
    z = np.where(visible(pattern, queries, keys), z + bias, -np.inf)
    top = z.max(-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isneginf(top), 0, top)
    e = np.exp(z - top)
    sum_ = e.sum(-1, keepdims=True)
    if sinks is not None:
        sum_ = np.where(sum_ > 0, sum_ + np.exp(np.reshape(sinks, (-1, 1, 1)) - top), 0)
    with np.errstate(divide="ignore"):
        lse = (np.log(sum_) + top)[..., 0]
    return np.divide(e, sum_, out=np.zeros_like(e), where=sum_ > 0), lse


def attend(q, k, v, pattern="full", **how):
    p, lse = probabilities(q, k, pattern, **how)
    v = np.asarray(v, np.float64)
    return p @ np.repeat(v, q.shape[1] // v.shape[1], axis=1), lse


def gradients(dout, q, k, v, pattern="full"):
    """Of q, k and v, for as many key heads as query heads."""
    dout, q, k, v = (np.asarray(x, np.float64) for x in (dout, q, k, v))
    p, _ = probabilities(q, k, pattern)
    dp = dout @ v.swapaxes(2, 3)
    dz = p * (dp - (dp * p).sum(-1, keepdims=True)) * q.shape[3] ** -0.5
    return dz @ k, dz.swapaxes(2, 3) @ q, p.swapaxes(2, 3) @ dout
