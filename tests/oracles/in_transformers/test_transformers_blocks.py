"""rapt.attend_reformer_local and rapt.attend_bigbird against the cores of Transformers' modules."""

import numpy as np
import pytest
import torch
import transformers
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention, BigBirdModel
from transformers.models.reformer.modeling_reformer import LocalSelfAttention

import rapt
from close import assert_close, assert_same_gradients, operands


class Given(torch.nn.Module):
    """Stands for a projection."""

    def __init__(self, out):
        super().__init__()
        self.out = out

    def forward(self, _):
        return self.out


def random_mask(draw, batch, tokens):
    """Padding anywhere, or at the end, or none."""
    kind = draw.integers(3)
    if kind == 0:
        return None
    real = draw.random((batch, tokens)) < 0.8
    return torch.from_numpy(real if kind == 1 else np.sort(real)[:, ::-1].copy())


@pytest.mark.parametrize("seed", range(24))
def test_local_attention_of_reformer(seed):
    draw = np.random.default_rng(seed)
    heads, dim, chunk = int(draw.integers(1, 4)), int(draw.integers(2, 17)), int(draw.integers(2, 9))
    before, after = int(draw.integers(0, 3)), int(draw.integers(0, 3))
    count = int(draw.integers(1, 7))
    tokens = chunk * count if count > 1 else int(draw.integers(1, chunk + 1))
    config = transformers.ReformerConfig(
        hidden_size=heads * dim, num_attention_heads=heads, attention_head_size=dim,
        local_attn_chunk_length=chunk, local_num_chunks_before=before, local_num_chunks_after=after,
        is_decoder=bool(draw.integers(2)), axial_pos_embds=False)
    module = LocalSelfAttention(config).eval()
    x = operands(2, tokens, heads, dim, seed=seed)
    module.query, module.key, module.value = (Given(y.flatten(2)) for y in x)
    real = random_mask(draw, 2, tokens)
    theirs = module(torch.empty(2, tokens, heads * dim), attention_mask=real).hidden_states
    mine = rapt.attend_reformer_local(*x, chunk=chunk, before=before, after=after, causal=config.is_decoder,
                                      attention_mask=real, empty_rows="sum", layout="blhd").flatten(2)
    assert_close(mine, theirs, roundings=64)
    assert_same_gradients(mine, theirs, x, roundings=256)


@pytest.mark.parametrize("seed", range(12))
def test_block_sparse_attention_of_big_bird(seed):
    draw = np.random.default_rng(seed)
    heads, dim, block = int(draw.integers(1, 4)), int(draw.integers(2, 17)), int(draw.integers(2, 9))
    random, blocks = int(draw.integers(1, 4)), int(draw.integers(12, 20))
    training, tokens = bool(draw.integers(2)), block * blocks
    config = transformers.BigBirdConfig(
        hidden_size=heads * dim, num_attention_heads=heads, block_size=block, num_random_blocks=random,
        max_position_embeddings=tokens, attention_probs_dropout_prob=0.0)
    module = BigBirdBlockSparseAttention(config, seed=seed).train(training)
    x = operands(2, tokens, heads, dim, seed=seed)
    module.query, module.key, module.value = (Given(y.flatten(2)) for y in x)
    real = random_mask(draw, 2, tokens)
    real = torch.ones(2, tokens) if real is None else real.float()
    real[:, 0] = 1  # a row needs a key there
    blocked, band, rows, columns = BigBirdModel.create_masks_for_block_sparse_attn(real, block)
    theirs = module(torch.empty(2, tokens, heads * dim), band, rows, columns, blocked, blocked)[0]
    how = {"first_block_counts": 1 + random}
    if training:
        np.random.seed(seed)
        lengths, counts = module._get_rand_attn_plan(tokens, block, random)
        drawn = module._bigbird_block_rand_mask_with_head(
            tokens, tokens, block, block, heads, lengths, counts)
        how = {"random": [[[], *(row.tolist() for row in table)] for table in drawn]}
    mine = rapt.attend_bigbird(*x, block=block, attention_mask=real.long(), layout="blhd", **how).flatten(2)
    assert_close(mine, theirs, roundings=64)
    assert_same_gradients(mine, theirs, x, roundings=256)


def test_the_compiler_takes_them():
    x = operands(1, 2, 48, 8)
    table = [[], [4], [5]]

    def both(q, k, v):
        return (rapt.attend_reformer_local(q, k, v, chunk=8, causal=True)
                + rapt.attend_bigbird(q, k, v, block=8, random=table))
    mine = torch.compile(both, fullgraph=True, backend="aot_eager")(*x)
    assert_close(mine, both(*x))
    assert_same_gradients(mine, both(*x), x)


def test_operators_are_well_formed():
    x = operands(1, 2, 12, 4, seed=1)
    rapt.attend_reformer_local(*x, chunk=4), rapt.attend_bigbird(*x, block=4)  # defines them
    torch.library.opcheck(torch.ops.rapt.attend_reformer_local.default,
                          (*x, None, None, None, "bhld;0;;4;1;0;1;zeros;0.0"))
    torch.library.opcheck(torch.ops.rapt.attend_bigbird.default,
                          (*x, torch.ones(12, dtype=torch.bool), None, None, "bhld;0;;4;1;0;0.0"))


def test_dropout_follows_the_seed_of_torch():
    x = operands(1, 2, 40, 8, grad=False)

    def drop():
        torch.manual_seed(5)
        return rapt.attend_reformer_local(*x, chunk=8, dropout=0.5)
    torch.testing.assert_close(drop(), drop(), rtol=0, atol=0)
    assert not torch.equal(drop(), rapt.attend_reformer_local(*x, chunk=8))
