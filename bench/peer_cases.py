"""What bench/peers.py times: contestants that compute the same, and the goals of rapt.

A contestant is a function of nothing that returns what it computed, [output, gradients...], each in
the layout of rapt's, so that answers can be compared in the run that times them.
"""

import dataclasses
import importlib.util
import typing

import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

import rapt

F32, BF16 = torch.float32, torch.bfloat16


@dataclasses.dataclass
class Case:
    make: typing.Callable  # () -> {who: call}, rapt first, then the library that the goals are about
    faster: float = None  # goal: its time over rapt's
    memory: float = None  # goal: rapt's extra memory over its
    longest_us: float = None  # goal: rapt's time
    tolerance: float = 1e-4  # of the largest number of each answer; bf16 has its own


def operands(batch, heads, queries, dim, dtype, keys=None, kv_heads=None, grad=False):
    torch.manual_seed(0)
    shapes = [(batch, heads, queries, dim)] + 2 * [(batch, kv_heads or heads, keys or queries, dim)]
    return [torch.randn(s).to(dtype).requires_grad_(grad) for s in shapes]


def answers(call, *inputs):
    """The output, and gradients of the inputs if there are any."""
    def both():
        if not inputs:
            with torch.no_grad():
                return [call()]
        out = call()
        return [out.detach(), *torch.autograd.grad(out, inputs, weights(out))]
    return both


def weights(out):
    """Gradients of the output that are not all alike, and cost nothing to make."""
    return torch.linspace(-1, 1, out.shape[-1], dtype=out.dtype).expand(out.shape)


def given(inputs, backward):
    return inputs if backward else ()


def have(module):
    return importlib.util.find_spec(module) is not None


# ---- dense attention

def dense(heads, tokens, dtype, causal, backward):
    x = operands(1, heads, tokens, 64, dtype, grad=backward)
    of = given(x, backward)
    calls = {"rapt": answers(lambda: rapt.attend(*x, "causal" if causal else None), *of),
             "torch SDPA": answers(lambda: sdpa(*x, is_causal=causal), *of)}
    if not backward and dtype == F32:
        if have("onnxruntime") and have("onnx"):
            calls["ONNX Runtime"] = onnx_runtime(x, causal)
        if have("openvino"):
            calls["OpenVINO"] = openvino(x, causal)
    return calls


def onnx_runtime(x, causal):
    """Its MultiHeadAttention, which takes [batch, tokens, heads * dim]."""
    import onnxruntime
    from onnx import TensorProto, helper

    batch, heads, tokens, dim = x[0].shape
    flat = [y.transpose(1, 2).reshape(batch, tokens, heads * dim).numpy() for y in x]
    node = helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["y"], domain="com.microsoft",
                            num_heads=heads, unidirectional=int(causal))
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, flat[0].shape) for n in "qkvy"]
    model = helper.make_model(
        helper.make_graph([node], "attention", info[:3], info[3:]), ir_version=10,
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # Its threads would wait for more work in a loop while the next contestant runs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])

    def call():
        out = session.run(None, dict(zip("qkv", flat)))[0]
        return [torch.from_numpy(out).view(batch, tokens, heads, dim).transpose(1, 2)]
    return call


def openvino(x, causal):
    import openvino
    from openvino import opset13

    inputs = [opset13.parameter(list(y.shape), openvino.Type.f32) for y in x]
    out = opset13.scaled_dot_product_attention(*inputs, causal=causal)
    compiled = openvino.Core().compile_model(openvino.Model([out], inputs), "CPU", {
        "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": torch.get_num_threads()})
    request, arrays = compiled.create_infer_request(), [y.numpy() for y in x]

    def call():
        return [torch.from_numpy(request.infer(arrays, share_inputs=True, share_outputs=True)[0])]
    return call


def windowed(tokens, window, backward):
    x = operands(1, 8, tokens, 64, F32, grad=backward)
    of = given(x, backward)
    pattern = rapt.causal() & rapt.window(window - 1, 0)
    mine = answers(lambda: rapt.attend(*x, pattern), *of)
    if backward:  # FlexAttention has none on CPUs
        i = torch.arange(tokens)
        mask = (i[:, None] >= i) & (i[:, None] - i < window)
        return {"rapt": mine,
                "torch SDPA, dense mask": answers(lambda: sdpa(*x, attn_mask=mask), *of)}
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention)
    mask = create_block_mask(lambda b, h, q, k: (q >= k) & (q - k < window), None, None, tokens,
                             tokens, device="cpu")
    theirs = answers(lambda: compiled(*x, block_mask=mask))
    theirs()  # compiled here, so that neither time nor memory counts it
    return {"rapt": mine, "torch FlexAttention, compiled": theirs}


def t5(tokens):
    from transformers.models.t5.modeling_t5 import T5Attention

    x = operands(1, 8, tokens, 64, F32, grad=True)
    table = torch.randn(32, 8, requires_grad=True)
    i = torch.arange(tokens)
    bucket = T5Attention._relative_position_bucket(i[None] - i[:, None])
    return {"rapt": answers(lambda: rapt.attend(*x, bias=rapt.t5_bias(table)), *x, table),
            "torch SDPA, dense bias": answers(
                lambda: sdpa(*x, attn_mask=table[bucket].permute(2, 0, 1)[None]), *x, table)}


def decode(keys):
    x = operands(1, 32, 1, 128, BF16, keys=keys, kv_heads=8)
    return {"rapt": answers(lambda: rapt.attend(*x, "causal")),
            "torch SDPA": answers(lambda: sdpa(*x, enable_gqa=True))}


def tiny(library):
    x = torch.randn(1, 1, 8, 8)
    if library == "numpy":
        y = x.numpy()
        return {"rapt": lambda: rapt.attend(y, y, y, "causal")}
    return {"rapt": lambda: rapt.attend(x, x, x, "causal"),
            "torch SDPA": lambda: sdpa(x, x, x, is_causal=True)}


# ---- the cores of Transformers' modules: what they project is given on both sides

class Given(torch.nn.Module):
    """Stands for a projection and returns what it would. Longformer divides its queries in place,
    hence the copy of them."""

    def __init__(self, out, copied=False):
        super().__init__()
        self.out, self.copied = out, copied

    def forward(self, _):
        return self.out.clone() if self.copied else self.out


def longformer(tokens, backward, heads=12, dim=64, window=512):
    import transformers
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    torch.manual_seed(0)
    config = transformers.LongformerConfig(hidden_size=heads * dim, num_attention_heads=heads,
                                           num_hidden_layers=1, attention_window=[window])
    module = LongformerSelfAttention(config, 0).eval()
    local = [torch.randn(1, tokens, heads * dim, requires_grad=backward) for _ in range(3)]
    # One token asks globally; keys and values of all answer it.
    asked = torch.randn(1, 1, heads * dim, requires_grad=backward)
    answer = [torch.randn(1, tokens, heads * dim, requires_grad=backward) for _ in range(2)]
    for name, x in zip(("key", "value", "key_global", "value_global"), local[1:] + answer):
        setattr(module, name, Given(x.transpose(0, 1)))
    module.query = Given(local[0].transpose(0, 1), copied=True)
    module.query_global = Given(asked.transpose(0, 1), copied=True)
    mask = torch.zeros(1, tokens)
    mask[:, 0] = 10000
    hidden, classes = torch.empty(1, tokens, heads * dim), mask.sign().long() + 1
    how = {"attention_mask": mask, "is_index_masked": mask < 0, "is_index_global_attn": mask > 0,
           "is_global_attn": True}

    def split(x):
        return x.view(1, x.shape[1], heads, dim)

    def mine():
        queries = torch.nn.functional.pad(asked, (0, 0, 0, tokens - 1))
        out = rapt.attend_longformer(*map(split, (*local, queries, *answer)), window=window // 2,
                                     classes=classes, layout="blhd")
        return out.reshape(1, tokens, heads * dim)
    of = given((*local, asked, *answer), backward)
    return {"rapt": answers(mine, *of),
            "Transformers Longformer": answers(lambda: module(hidden, **how)[0], *of)}


def reformer(tokens, backward, heads=8, dim=64, chunk=64, rounds=4):
    import transformers
    from transformers.models.reformer.modeling_reformer import LSHSelfAttention

    torch.manual_seed(0)
    config = transformers.ReformerConfig(
        hidden_size=heads * dim, num_attention_heads=heads, attention_head_size=dim,
        lsh_attn_chunk_length=chunk, num_hashes=rounds, num_buckets=None, hash_seed=0,
        is_decoder=True, max_position_embeddings=tokens, axial_pos_embds=False)
    module = LSHSelfAttention(config).eval()
    buckets = rapt.lsh_buckets(tokens, chunk)
    module.num_buckets = buckets[0] if len(buckets) == 1 else buckets  # as it would, without a word
    qk, v = (torch.randn(1, tokens, heads * dim, requires_grad=backward) for _ in range(2))
    module.query_key, module.value = Given(qk), Given(v)
    hidden = torch.empty(1, tokens, heads * dim)

    def mine():
        split = (x.view(1, tokens, heads, dim) for x in (qk, v))
        out = rapt.attend_lsh(*split, chunk=chunk, rounds=rounds, buckets=buckets, seed=0,
                              pattern="causal", layout="blhd")
        return out.reshape(1, tokens, heads * dim)
    of = given((qk, v), backward)
    return {"rapt": answers(mine, *of),
            "Transformers Reformer": answers(lambda: module(hidden).hidden_states, *of)}


# ---- whole modules, projections included, before and after accelerate()

def big_bird(tokens, backward, hidden=512, heads=8):
    import copy

    import transformers
    from rapt.integrations.transformers import accelerate
    from transformers.models.big_bird.modeling_big_bird import (BigBirdBlockSparseAttention,
                                                                BigBirdModel)

    torch.manual_seed(0)
    config = transformers.BigBirdConfig(hidden_size=hidden, num_attention_heads=heads,
                                        max_position_embeddings=tokens)
    theirs = BigBirdBlockSparseAttention(config).eval()
    mine = accelerate(copy.deepcopy(theirs))
    x = torch.randn(1, tokens, hidden, requires_grad=backward)
    blocked, band, rows, columns = BigBirdModel.create_masks_for_block_sparse_attn(
        torch.ones(1, tokens), config.block_size)

    def run(module):
        return answers(lambda: module(x, band, rows, columns, blocked, blocked)[0],
                       *given((x,), backward))
    return {"rapt": run(mine), "Transformers BigBird": run(theirs)}


def led(tokens, backward, hidden=512, heads=8):
    import copy

    import transformers
    from rapt.integrations.transformers import accelerate
    from transformers.models.led.modeling_led import LEDEncoderSelfAttention

    torch.manual_seed(0)
    config = transformers.LEDConfig(d_model=hidden, encoder_attention_heads=heads,
                                    attention_window=[512])
    config.num_attention_heads = heads
    theirs = LEDEncoderSelfAttention(config, 0).eval()
    mine = accelerate(copy.deepcopy(theirs))
    x, mask = torch.randn(1, tokens, hidden, requires_grad=backward), torch.zeros(1, tokens)
    how = {"attention_mask": mask, "is_index_masked": mask < 0, "is_index_global_attn": mask > 0,
           "is_global_attn": False}

    def run(module):
        return answers(lambda: module(x, **how)[0], *given((x,), backward))
    return {"rapt": run(mine), "Transformers LED": run(theirs)}


def passes(backward):
    return "forward + backward" if backward else "forward"


def cases():
    """{name: Case}; the names say the shapes."""
    found = {}

    def add(name, make, *arguments, **goals):
        found[name] = Case(lambda: make(*arguments), **goals)
    add("f32 full, 16 heads x 64, 4096 tokens, forward", dense, 16, 4096, F32, False, False,
        faster=1.15)
    for n in (512, 1024, 2048, 4096):
        add(f"f32 causal, 16 heads x 64, {n} tokens, forward", dense, 16, n, F32, True, False,
            faster=1.3)
    for heads in (4, 16):
        add(f"f32 causal, {heads} heads x 64, 2048 tokens, forward + backward", dense, heads, 2048,
            F32, True, True, faster=1.5)
    for backward in (False, True):
        for causal in (False, True):
            for n in (2048, 4096):
                add(f"bf16 {'causal' if causal else 'full'}, 16 heads x 64, {n} tokens, "
                    f"{passes(backward)}", dense, 16, n, BF16, causal, backward,
                    faster=2.0 if backward else 1.5, tolerance=0.03)
    for backward in (False, True):
        add(f"f32 causal window 256, 8 heads x 64, 16384 tokens, {passes(backward)}", windowed,
            16384, 256, backward, faster=8.0 if backward else 1.5)
    add("f32 T5 bias, 8 heads x 64, 4096 tokens, forward + backward", t5, 4096, faster=3.0,
        memory=0.1, tolerance=1e-3)
    for n in (8192, 16384, 32768, 65536):
        add(f"bf16 decode, 32 / 8 heads x 128, {n} keys", decode, n, faster=1.5, tolerance=0.03)
    for n in (4096, 16384):
        for backward in (False, True):
            add(f"f32 Longformer core, 12 heads x 64, window 512, 1 global, {n} tokens, "
                f"{passes(backward)}", longformer, n, backward, faster=10.0, memory=0.25)
    for n in (4096, 16384):
        for backward in (False, True):
            add(f"f32 Reformer LSH core, 8 heads x 64, chunk 64, 4 rounds, {n} tokens, "
                f"{passes(backward)}", reformer, n, backward, faster=8.0, memory=0.25,
                tolerance=1e-3)
    for backward in (False, True):
        add(f"f32 BigBird layer, 8 heads x 64, 4096 tokens, {passes(backward)}", big_bird, 4096,
            backward)
        add(f"f32 LED layer, 8 heads x 64, window 512, 4096 tokens, {passes(backward)}", led, 4096,
            backward)
    add("tiny call, torch", tiny, "torch", longest_us=25)
    add("tiny call, numpy", tiny, "numpy", longest_us=10)
    return found
