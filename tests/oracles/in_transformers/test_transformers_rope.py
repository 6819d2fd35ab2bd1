"""Rotary frequencies, scalings and rotations against Transformers' rope utilities, on random
configurations."""

import random

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as rotate_interleaved
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from rapt.positions import DynamicNtkRope, LinearRope, Llama3Rope, LongRope, Rope, YarnRope

SEEDS = range(8)


def config(dim, base, **rope):
    trained = rope.pop("max_position_embeddings", 2048)
    return LlamaConfig(hidden_size=2 * dim, num_attention_heads=2, head_dim=dim,
                       max_position_embeddings=trained,
                       rope_parameters={"rope_theta": base, **rope})


def linear(draw, dim):
    factor = draw.uniform(1, 16)
    return {"rope_type": "linear", "factor": factor}, LinearRope(factor), 100


def dynamic(draw, dim):
    factor, tokens = draw.uniform(1, 8), draw.choice([100, 2048, 2049, 5000, 9000])
    return {"rope_type": "dynamic", "factor": factor}, DynamicNtkRope(factor, 2048), tokens


def yarn(draw, dim):
    factor, trained = draw.uniform(1.5, 40), draw.choice([512, 4096])
    fast, slow, truncate = draw.choice([16, 32, 64]), draw.choice([1, 2]), draw.random() < 0.5
    given = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": trained,
             "max_position_embeddings": int(trained * factor), "beta_fast": fast,
             "beta_slow": slow, "truncate": truncate}
    mine = {"fast": fast, "slow": slow, "truncate": truncate}
    if draw.random() < 0.5:
        given["mscale"], given["mscale_all_dim"] = 1.0, 0.8
        mine["mscale"], mine["mscale_all_dim"] = 1.0, 0.8
    return given, YarnRope(factor, trained, **mine), 100


def llama3(draw, dim):
    factor, trained = draw.choice([4.0, 8.0, 32.0]), draw.choice([1024, 8192])
    low, high = draw.choice([(1.0, 4.0), (2.0, 8.0)])
    return ({"rope_type": "llama3", "factor": factor, "low_freq_factor": low,
             "high_freq_factor": high, "original_max_position_embeddings": trained,
             "max_position_embeddings": int(factor * trained)},
            Llama3Rope(factor, trained, low, high), 100)


def longrope(draw, dim):
    factor, trained = draw.choice([4.0, 32.0]), 4096
    short = [draw.uniform(1, 2) for _ in range(dim // 2)]
    far = [draw.uniform(1, 60) for _ in range(dim // 2)]
    return ({"rope_type": "longrope", "factor": factor, "short_factor": short,
             "long_factor": far, "original_max_position_embeddings": trained,
             "max_position_embeddings": int(factor * trained)},
            LongRope(short, far, trained, factor), draw.choice([100, 4096, 4097, 20000]))


@pytest.mark.parametrize("make", [linear, dynamic, yarn, llama3, longrope])
@pytest.mark.parametrize("seed", SEEDS)
def test_frequencies_are_transformers(make, seed):
    draw = random.Random(seed)
    dim, base = draw.choice([16, 64, 96, 128]), draw.choice([1e4, 5e5, 1e6])
    given, scaling, tokens = make(draw, dim)
    expected, factor = ROPE_INIT_FUNCTIONS[given["rope_type"]](config(dim, base, **given), "cpu",
                                                               seq_len=tokens)
    rope = Rope(dim, base, scaling=scaling).for_length(tokens)
    torch.testing.assert_close(torch.tensor(rope.frequencies, dtype=torch.float64),
                               expected.double(), rtol=2e-6, atol=0)
    assert rope.attention_factor == pytest.approx(factor, rel=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_half_split_rotations_and_their_gradients_are_llamas(seed):
    draw = random.Random(seed)
    dim, base, first = draw.choice([8, 64, 128]), draw.choice([1e4, 5e5]), draw.choice([0, 1, 999])
    torch.manual_seed(seed)
    x = torch.randn(2, 3, 37, dim, requires_grad=True)
    at = torch.arange(first, first + 37)[None].expand(2, -1)
    cos, sin = LlamaRotaryEmbedding(config(dim, base, rope_type="default"))(x, at)
    theirs, _ = apply_rotary_pos_emb(x, x, cos, sin)
    mine = Rope(dim, base).apply(x, first)
    compare(mine, theirs, x, first)


@pytest.mark.parametrize("seed", SEEDS)
def test_interleaved_rotations_and_their_gradients_are_gptjs(seed):
    draw = random.Random(seed)
    dim, rotated, first = 64, draw.choice([16, 32, 64]), draw.choice([0, 5, 700])
    torch.manual_seed(seed)
    x = torch.randn(2, 37, 3, dim, requires_grad=True)  # GPT-J turns before it moves the heads
    angles = torch.outer(torch.arange(first, first + 37).float(),
                         10000 ** (-torch.arange(0, rotated, 2).float() / rotated))
    turned = rotate_interleaved(x[..., :rotated], angles.sin()[None], angles.cos()[None])
    theirs = torch.cat([turned, x[..., rotated:]], -1)
    mine = Rope(dim, rotated=rotated, layout="interleaved").apply(x, first, layout="blhd")
    compare(mine, theirs, x, first)


def compare(mine, theirs, x, first):
    """Their angles are products in f32, off by half a unit of the angle; ours are exact."""
    atol = 4e-6 + 2e-7 * (first + 37)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=atol)
    weight = torch.randn_like(theirs)
    found, = torch.autograd.grad(mine, x, weight)
    expected, = torch.autograd.grad(theirs, x, weight)
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)
