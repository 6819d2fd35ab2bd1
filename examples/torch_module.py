#!/usr/bin/env python3
"""A PyTorch module with rapt's attention: the same outputs and gradients as PyTorch's attention with a
mask, then a few steps of training.

    python3 examples/torch_module.py
"""

import sys

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import rapt

VOCAB, WIDTH, HEADS, TOKENS, WINDOW = 32, 64, 4, 128, 16


class LocalAttention(nn.Module):
    """Causal self-attention over the last WINDOW tokens, with slopes of ALiBi that are trained."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.slopes = nn.Parameter(torch.tensor(rapt.alibi_slopes(HEADS)))

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).unbind(2)  # [batch, tokens, heads, dim]
        pattern = rapt.window(WINDOW - 1, 0)
        y = rapt.attend(q, k, v, pattern, bias=rapt.alibi(self.slopes), layout="blhd")
        return self.out(y.flatten(2))


class DenseAttention(LocalAttention):
    """The same with PyTorch's attention, which needs numbers for every pair of tokens."""

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        distance = torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)
        hidden = (distance < 0) | (distance >= WINDOW)
        bias = -self.slopes[:, None, None] * distance.abs()
        y = scaled_dot_product_attention(q, k, v, attn_mask=bias.masked_fill(hidden, -torch.inf))
        return self.out(y.transpose(1, 2).flatten(2))


def largest_differences():
    """Of outputs, and of the gradients of the input and of every parameter."""
    mine, dense = LocalAttention(), DenseAttention()
    dense.load_state_dict(mine.state_dict())
    x, dout = torch.randn(2, 2, TOKENS, WIDTH)
    results = []
    for module in (mine, dense):
        inputs = x.clone().requires_grad_()
        y = module(inputs)
        results.append((y, *torch.autograd.grad(y, [inputs, *module.parameters()], dout)))
    out, *gradients = ((a - b).abs().max() / b.abs().max() for a, b in zip(*results))
    return out.item(), max(gradients).item()


def train(steps=60):
    """Every token is the one five places before it: what a window of 16 can find."""
    model = nn.Sequential(nn.Embedding(VOCAB, WIDTH), LocalAttention(), nn.LayerNorm(WIDTH),
                          nn.Linear(WIDTH, VOCAB))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(1, steps + 1):
        ids = torch.randint(VOCAB, (8, 5)).repeat(1, TOKENS // 5 + 2)[:, :TOKENS + 1]
        loss = cross_entropy(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1 or step % 20 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    return loss.item()


def main():
    torch.manual_seed(0)
    out, gradients = largest_differences()
    print(f"largest relative difference from PyTorch: outputs {out:.1e}, gradients {gradients:.1e}")
    return 0 if out < 1e-5 and gradients < 1e-5 and train() < 2.0 else 1


if __name__ == "__main__":
    sys.exit(main())
