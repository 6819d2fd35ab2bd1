#!/usr/bin/env python3
"""rapt against PyTorch in one process, calls interleaved: medians, spread, memory.

    bench/peers.py [--cases REGEX] [--repeats N] [--threads N] [--json FILE] [--markdown FILE]

Peers: torch SDPA, compiled FlexAttention, Transformers' Longformer. A case runs
every contestant once to warm up and then in turns, so that a busy machine hurts all alike.
"""

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time

THREADS = next((sys.argv[i + 1] for i, x in enumerate(sys.argv[:-1]) if x == "--threads"), None)
if THREADS:  # before either library reads it
    os.environ["RAPT_THREADS"] = os.environ["OMP_NUM_THREADS"] = THREADS

import torch  # noqa: E402
from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as sdpa  # noqa: E402

import rapt  # noqa: E402


def operands(batch, heads, queries, dim, dtype, keys=None, kv_heads=None, grad=False):
    torch.manual_seed(0)
    shapes = [(batch, heads, queries, dim)] + 2 * [(batch, kv_heads or heads, keys or queries, dim)]
    return [torch.randn(s).to(dtype).requires_grad_(grad) for s in shapes]


def with_backward(call, *inputs):
    def both():
        out = call()
        torch.autograd.grad(out, inputs, torch.ones_like(out))
    return both


def dense(heads, tokens, dtype, causal, backward):
    x = operands(1, heads, tokens, 64, dtype, grad=backward)
    mine, theirs = (lambda: rapt.attend(*x, "causal" if causal else None)), \
        (lambda: sdpa(*x, is_causal=causal))
    wrap = (lambda f: with_backward(f, *x)) if backward else (lambda f: f)
    return {"rapt": wrap(mine), "torch SDPA": wrap(theirs)}


def windowed(tokens, window, backward):
    x = operands(1, 8, tokens, 64, torch.float32, grad=backward)
    pattern = rapt.causal() & rapt.window(window - 1, 0)
    if not backward:
        compiled = torch.compile(flex_attention)
        mask = create_block_mask(lambda b, h, q, k: (q >= k) & (q - k < window), None, None, tokens,
                                 tokens, device="cpu")
        return {"rapt": lambda: rapt.attend(*x, pattern),
                "torch FlexAttention, compiled": lambda: compiled(*x, block_mask=mask)}
    i = torch.arange(tokens)
    mask = (i[:, None] >= i) & (i[:, None] - i < window)
    return {"rapt": with_backward(lambda: rapt.attend(*x, pattern), *x),
            "torch SDPA, dense mask": with_backward(lambda: sdpa(*x, attn_mask=mask), *x)}


def t5(tokens):
    x = operands(1, 8, tokens, 64, torch.float32, grad=True)
    table = torch.randn(32, 8, requires_grad=True)
    from transformers.models.t5.modeling_t5 import T5Attention

    i = torch.arange(tokens)
    bucket = T5Attention._relative_position_bucket(i[None] - i[:, None])
    return {"rapt": with_backward(lambda: rapt.attend(*x, bias=rapt.t5_bias(table)), *x, table),
            "torch SDPA, dense bias": with_backward(
                lambda: sdpa(*x, attn_mask=table[bucket].permute(2, 0, 1)[None]), *x, table)}


def decode(keys, dtype):
    x = operands(1, 32, 1, 128, dtype, keys=keys, kv_heads=8)
    return {"rapt": lambda: rapt.attend(*x, "causal"),
            "torch SDPA": lambda: sdpa(*x, enable_gqa=True)}


def longformer(tokens):
    import copy

    import transformers
    from rapt.integrations.transformers import accelerate

    torch.manual_seed(0)
    config = transformers.LongformerConfig(hidden_size=512, num_attention_heads=8, num_hidden_layers=1,
                                           attention_window=[512])
    theirs = transformers.models.longformer.modeling_longformer.LongformerSelfAttention(config, 0).eval()
    mine = accelerate(copy.deepcopy(theirs))
    x, mask = torch.randn(1, tokens, 512), torch.zeros(1, tokens)
    mask[:, 0] = 10000
    how = {"attention_mask": mask, "is_index_masked": mask < 0, "is_index_global_attn": mask > 0,
           "is_global_attn": True}

    def run(module):
        def call():
            with torch.no_grad():
                return module(x, **how)
        return call
    return {"rapt": run(mine), "Transformers Longformer": run(theirs)}


def tiny(kind):
    x = torch.randn(1, 1, 8, 8)
    if kind == "numpy":
        y = x.numpy()
        return {"rapt": lambda: rapt.attend(y, y, y, "causal")}
    return {"rapt": lambda: rapt.attend(x, x, x, "causal"), "torch SDPA": lambda: sdpa(x, x, x, is_causal=True)}


F32, BF16 = torch.float32, torch.bfloat16
# name: (contestants, how much faster than the peer rapt has to be)
CASES = {
    "f32 full, 16 heads, 4096 tokens, forward": (lambda: dense(16, 4096, F32, False, False), 1.15),
    **{f"f32 causal, 16 heads, {n} tokens, forward":
       ((lambda n=n: dense(16, n, F32, True, False)), 1.3) for n in (512, 1024, 2048, 4096)},
    **{f"f32 causal, {h} heads, 2048 tokens, forward + backward":
       ((lambda h=h: dense(h, 2048, F32, True, True)), 1.5) for h in (4, 16)},
    **{f"bf16 {'causal' if c else 'full'}, 16 heads, {n} tokens, forward":
       ((lambda c=c, n=n: dense(16, n, BF16, c, False)), 1.5) for c in (False, True) for n in (2048, 4096)},
    "bf16 causal, 16 heads, 2048 tokens, forward + backward":
        (lambda: dense(16, 2048, BF16, True, True), 2.0),
    "f32 causal window 256, 8 heads, 16384 tokens, forward": (lambda: windowed(16384, 256, False), 1.5),
    "f32 causal window 256, 8 heads, 16384 tokens, forward + backward":
        (lambda: windowed(16384, 256, True), 8.0),
    "f32 T5 bias, 8 heads, 4096 tokens, forward + backward": (lambda: t5(4096), 3.0),
    **{f"bf16 decode, 32 / 8 heads x 128, {n} keys": ((lambda n=n: decode(n, BF16)), 1.5)
       for n in (8192, 65536)},
    "f32 Longformer layer, window 512, 4096 tokens, forward": (lambda: longformer(4096), None),
    "tiny call, torch": (lambda: tiny("torch"), None),
    "tiny call, numpy": (lambda: tiny("numpy"), None),
}


def timed(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def status_kb(field):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field))


def grown_kb(name, who):
    """What one call has resident at its peak, beyond what was there before."""
    call = CASES[name][0]()[who]
    for contestant in dense(1, 8, F32, True, True).values():
        contestant()  # whatever either library loads or starts at its first call
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak starts anew; getrusage's would be that of the parent
    before = status_kb("VmRSS")
    call()
    return status_kb("VmHWM") - before


def extra_memory_mb(name, who):
    """In a process of its own, where nothing is kept from earlier calls."""
    command = [sys.executable, __file__, "--grown", name, who]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout.splitlines()[-1]) / 1024


def run(name, make, repeats, seconds):
    contestants = make()
    once = {who: min(timed(call), timed(call)) for who, call in contestants.items()}
    rounds = max(3, min(repeats, int(seconds / sum(once.values()))))
    inner = {who: max(1, int(0.002 / t)) for who, t in once.items()}
    times = {who: [] for who in contestants}
    for _ in range(rounds):
        for who, call in contestants.items():
            times[who].append(timed(lambda: [call() for _ in range(inner[who])]) / inner[who])
    return [{"case": name, "who": who, "median_ms": 1e3 * statistics.median(t), "least_ms": 1e3 * min(t),
             "most_ms": 1e3 * max(t), "rounds": rounds, "extra_mb": extra_memory_mb(name, who)}
            for who, t in times.items()]


def table(results):
    lines = ["| case | contestant | median | least | most | extra memory | peer / rapt | goal |",
             "|---|---|--:|--:|--:|--:|--:|--:|"]
    for r in results:
        mine = next(x for x in results if x["case"] == r["case"] and x["who"] == "rapt")
        ratio = "" if r is mine else f"{r['median_ms'] / mine['median_ms']:.2f}"
        goal = CASES[r["case"]][1]
        lines.append(f"| {r['case']} | {r['who']} | {r['median_ms']:.3f} ms | {r['least_ms']:.3f} | "
                     f"{r['most_ms']:.3f} | {r['extra_mb']:.0f} MB | {ratio} | {'' if r is mine or not goal else f'≥ {goal}'} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default="", help="only those that match")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=20, help="for each case, about")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--grown", nargs=2, metavar=("CASE", "WHO"), help=argparse.SUPPRESS)
    parser.add_argument("--json")
    parser.add_argument("--markdown")
    options = parser.parse_args()
    torch.set_num_threads(options.threads or rapt.Context().threads)
    if options.grown:
        print(grown_kb(*options.grown))
        return
    print(f"{platform.processor() or platform.machine()}, rapt {rapt.__version__} on {rapt.Context().isa} "
          f"with {rapt.Context().threads} threads, torch {torch.__version__} with "
          f"{torch.get_num_threads()}", file=sys.stderr)
    results = []
    for name, (make, _) in CASES.items():
        if re.search(options.cases, name):
            print(name, file=sys.stderr)
            results += run(name, make, options.repeats, options.seconds)
    print(table(results))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)
    if options.markdown:
        with open(options.markdown, "w") as file:
            file.write(table(results) + "\n")


main()
