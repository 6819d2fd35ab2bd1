#!/usr/bin/env python3
"""Training in rapt and in PyTorch: the same model, first weights, batches and AdamW.

    bench/train_peers.py [--cases REGEX] [--rounds N] [--threads N] [--tool FILE]
                         [--json FILE] [--markdown FILE] [--from FILE.json]

Each contestant is a process of its own that takes steps when it is told to, in turns, so that a busy
machine hurts both alike. PyTorch is eager with scaled_dot_product_attention, one product for queries,
keys and values, and the fused AdamW. Losses are compared over all steps that were taken; extra memory
is what a process has resident at the peak of its first step, beyond what was there before. The data
are the project's own documentation.

bf16 is for rapt `model.weight_type = "bf16"` and for PyTorch autocast: f32 weights, moments and AdamW on both
sides, products of bf16 numbers.
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]

GPT2 = """[model]
vocab_size = 512
hidden_size = 256
layers = 4
heads = 4
positions = "learned"
max_positions = 4096
"""
LLAMA = """[model]
vocab_size = 512
hidden_size = 256
layers = 4
heads = 4
kv_heads = 2
intermediate_size = 704
norm = "rms"
gated = true
activation = "silu"
biases = "none"
tied_embeddings = false
"""
BF16 = 'weight_type = "bf16"\n'
WINDOW = 'patterns = ["causal & window(256, 0)"]\n'
RUN = """[data]
path = "{data}"
batch_size = {items}
tokens = {tokens}
eval_batches = "none"
separate_documents = false
[tokenizer]
kind = "bpe"
vocab_size = 512
[train]
learning_rate = 1e-3
decay = "constant"
warmup_steps = 20
weight_decay = 0.1
beta2 = 0.95
"""


@dataclasses.dataclass
class Case:
    model: str
    items: int
    tokens: int
    window: bool = False
    bf16: bool = False
    steps: int = 2  # of a turn
    compared: int = 0  # steps, at least
    faster: float = 0  # than the peer by so many times
    memory: float = 0  # at most so much of the peer's
    close: float = 1e-3  # losses, relative; roundings of bf16 are 4e-3 each

    def config(self):
        run = RUN.format(data=ROOT / "docs", items=self.items, tokens=self.tokens)
        return self.model + WINDOW * self.window + BF16 * self.bf16 + run


CASES = {
    "GPT-2, 2 x 256": Case(GPT2, 2, 256, steps=10, compared=200),
    "Llama, 2 x 256": Case(LLAMA, 2, 256, steps=10, compared=200),
    "GPT-2, 8 x 512": Case(GPT2, 8, 512, faster=1.3),
    "Llama, 8 x 512": Case(LLAMA, 8, 512, faster=1.3),
    "GPT-2, 8 x 512, bf16": Case(GPT2, 8, 512, bf16=True, faster=1.5, close=1e-2),
    "Llama, 8 x 512, bf16": Case(LLAMA, 8, 512, bf16=True, faster=1.5, close=1e-2),
    "GPT-2, 1 x 4,096, causal & window(256)": Case(GPT2, 1, 4096, True, faster=2),
    "Llama, 1 x 4,096, causal & window(256)": Case(LLAMA, 1, 4096, True, faster=2),
    "Llama, 1 x 16,384, causal & window(256)": Case(LLAMA, 1, 16384, True, steps=1, memory=1 / 4),
}


# The peer --------------------------------------------------------------------------------------------

def read_batches(path):
    import torch

    batches = []
    for line in path.read_text().splitlines():
        what, *numbers = line.split()
        if what == "batch":
            batches.append({"tokens": [], "targets": []})
        else:
            batches[-1][what].append([int(number) for number in numbers])
    return [{name: torch.tensor(rows) for name, rows in batch.items()} for batch in batches]


class Peer:
    """The model of a config in PyTorch, with rapt's names of parameters."""

    def __init__(self, config, weights, tokens):
        import torch

        self.config, self.torch, self.f = config, torch, torch.nn.functional
        self.weights = {name: x.requires_grad_() for name, x in weights.items()}
        self.dim = config["hidden_size"] // config["heads"]
        self.mask, self.cos_sin = None, None
        places = torch.arange(tokens)
        if "patterns" in config:
            reach = int(re.search(r"window\((\d+)", config["patterns"][0])[1])
            back = places[:, None] - places[None, :]
            self.mask = (back >= 0) & (back <= reach)
        if config.get("positions", "rope") == "rope":
            angles = places[:, None] * 10000.0 ** (-torch.arange(0, self.dim, 2).double() / self.dim)
            self.cos_sin = [f(torch.cat([angles, angles], -1)).float() for f in (torch.cos, torch.sin)]

    def norm(self, name, x):
        gain, shift = self.weights[name + ".weight"], self.weights.get(name + ".bias")
        if shift is None:
            return self.f.rms_norm(x, gain.shape, gain, 1e-5)
        return self.f.layer_norm(x, gain.shape, gain, shift, 1e-5)

    def linear(self, name, x):
        return self.f.linear(x, self.weights[name + ".weight"], self.weights.get(name + ".bias"))

    def turned(self, x):
        if self.cos_sin is None:
            return x
        a, b = x.chunk(2, -1)
        return x * self.cos_sin[0] + self.torch.cat([-b, a], -1) * self.cos_sin[1]

    def attention(self, name, x):
        heads = self.config["heads"]
        kv_heads = self.config.get("kv_heads", heads)
        parts = self.linear(name + ".qkv", x).split([n * self.dim for n in (heads, kv_heads, kv_heads)],
                                                    -1)
        q, k, v = (part.unflatten(-1, (-1, self.dim)).transpose(1, 2) for part in parts)
        y = self.f.scaled_dot_product_attention(
            self.turned(q), self.turned(k), v, attn_mask=self.mask, is_causal=self.mask is None,
            enable_gqa=kv_heads != heads)
        return self.linear(name + ".out", y.transpose(1, 2).flatten(2))

    def transform(self, name, x):
        y = self.linear(name + ".up", x)
        if self.config.get("gated"):
            gate, up = y.chunk(2, -1)
            return self.linear(name + ".down", self.f.silu(gate) * up)
        return self.linear(name + ".down", self.f.gelu(y, approximate="tanh"))

    def loss(self, tokens, targets):
        x = self.weights["embedding.weight"][tokens]
        if "positions.weight" in self.weights:
            x = x + self.weights["positions.weight"][:tokens.shape[1]]
        for i in range(self.config["layers"]):
            layer = f"decoder.layers.{i}"
            x = x + self.attention(layer + ".attention", self.norm(layer + ".attention.norm", x))
            x = x + self.transform(layer + ".ffn", self.norm(layer + ".ffn.norm", x))
        head = self.weights.get("head.weight", self.weights["embedding.weight"])
        logits = self.f.linear(self.norm("decoder.norm", x), head)
        return self.f.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


def train_peer(folder, threads):
    """model_tool train in PyTorch."""
    import tomllib

    import torch
    from safetensors.torch import load_file

    torch.set_num_threads(threads)
    config = tomllib.loads((folder / "run.toml").read_text())
    how, batches = config["train"], read_batches(folder / "batches.txt")
    peer = Peer(config["model"], load_file(folder / "first.safetensors"), config["data"]["tokens"])
    all_weights = list(peer.weights.values())
    narrow = config["model"].get("weight_type") == "bf16"
    optimizer = torch.optim.AdamW(
        [{"params": [x for x in all_weights if x.dim() > 1], "weight_decay": how["weight_decay"]},
         {"params": [x for x in all_weights if x.dim() == 1], "weight_decay": 0.0}],
        betas=(0.9, how["beta2"]), eps=1e-8, fused=True)
    print("ready", flush=True)
    step = 0
    for line in sys.stdin:
        losses, begin = [], time.perf_counter()
        for _ in range(int(line)):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow):
                loss = peer.loss(**batches[step % len(batches)])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(all_weights, 1.0)
            for group in optimizer.param_groups:
                group["lr"] = how["learning_rate"] * min(1, (step + 1) / how["warmup_steps"])
            optimizer.step()
            losses.append(loss.item())
            step += 1
        print(*losses, time.perf_counter() - begin, flush=True)


# The comparison ---------------------------------------------------------------------------------------

class Contestant:
    """A process that takes steps when it is told to."""

    def __init__(self, command, threads):
        environment = os.environ | {"RAPT_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen([str(word) for word in command], text=True, env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self.process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{command[0]} did not start")

    def steps(self, count):
        """Losses, and seconds of a step."""
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        *losses, seconds = map(float, self.process.stdout.readline().split())
        return losses, seconds / count

    def status_mb(self, field):
        with open(f"/proc/{self.process.pid}/status") as file:
            return next(int(x.split()[1]) for x in file if x.startswith(field)) / 1024

    def extra_mb(self):
        """What the next step has resident at its peak, beyond what is there now."""
        with open(f"/proc/{self.process.pid}/clear_refs", "w") as file:
            file.write("5")
        before = self.status_mb("VmRSS")
        self.steps(1)
        return self.status_mb("VmHWM") - before

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def prepare(case, folder, steps, tool):
    (folder / "run.toml").write_text(case.config())
    subprocess.run([tool, "init", folder / "run.toml", folder / "first.safetensors"], check=True)
    subprocess.run([tool, "batches", folder / "run.toml", folder / "run", str(steps),
                    folder / "batches.txt"], check=True)


def contestants(folder, options):
    inputs = [folder / name for name in ("run.toml", "first.safetensors", "batches.txt")]
    return {"rapt": Contestant([options.tool, "train", *inputs], options.threads),
            "torch": Contestant([sys.executable, __file__, "--peer", folder,
                                 "--threads", options.threads], options.threads)}


def measure(name, case, options):
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        prepare(case, folder, max(case.compared, 8), options.tool)
        both = contestants(folder, options)
        extra = {who: one.extra_mb() for who, one in both.items()}
        times = {who: [] for who in both}
        losses = {who: [] for who in both}
        while len(losses["rapt"]) < case.compared or len(times["rapt"]) < options.rounds:
            for who, one in both.items():
                found, seconds = one.steps(case.steps)
                losses[who] += found
                times[who].append(1e3 * seconds)
        for one in both.values():
            one.end()
    differ = [abs(a - b) / b for a, b in zip(losses["rapt"], losses["torch"])]
    rows = [{"case": name, "who": who, "median_ms": statistics.median(times[who]),
             "least_ms": min(times[who]), "most_ms": max(times[who]), "extra_mb": extra[who],
             "loss": losses[who][-1], "steps": len(losses[who]) + 1, "difference": max(differ)}
            for who in both]
    rows[1]["ratio"] = rows[1]["median_ms"] / rows[0]["median_ms"]
    rows[1]["memory"] = rows[1]["extra_mb"] / rows[0]["extra_mb"]
    rows[1]["goals"] = [(f"≥ {case.faster:g}×", rows[1]["ratio"] >= case.faster)] * (case.faster > 0)
    if case.memory:
        rows[1]["goals"] += [(f"≤ 1/{1 / case.memory:g} memory", rows[1]["memory"] * case.memory >= 1)]
    near = math.isfinite(max(differ)) and max(differ) <= case.close
    rows[1]["goals"] += [(f"losses within {case.close:.0e}", near)]
    return rows


def table(rows):
    yield ("| case | contestant | ms a step: median (least–most) | extra MB | torch / rapt | memory | "
           "goal | reached | last loss (steps) | losses differ by |")
    yield "|---|---|--:|--:|--:|--:|---|---|--:|--:|"
    for row in rows:
        peer = "ratio" in row
        ratio = f"{row['ratio']:.2f}× | {row['memory']:.1f}×" if peer else "|"
        goals = row.get("goals", [])
        yield (f"| {'' if peer else row['case']} | {row['who']} | {row['median_ms']:.0f} "
               f"({row['least_ms']:.0f}–{row['most_ms']:.0f}) | {row['extra_mb']:.0f} | {ratio} | "
               f"{', '.join(text for text, _ in goals)} | "
               f"{', '.join('yes' if reached else '**no**' for _, reached in goals)} | "
               f"{row['loss']:.4f} ({row['steps']}) | "
               f"{row['difference']:.0e} |")


def machine(threads):
    from importlib.metadata import version

    with open("/proc/cpuinfo") as file:
        cpu = next((x.split(":", 1)[1].strip() for x in file if x.startswith("model name")), "a CPU")
    return f"{cpu}, {threads} threads, f32 unless a case says bf16; torch {version('torch')}."


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default="", help="only those whose name matches")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contestant, at least")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tool", type=pathlib.Path, default=ROOT / "build/release/bin/model_tool")
    parser.add_argument("--json", help="write results there")
    parser.add_argument("--markdown")
    parser.add_argument("--from", dest="earlier", help="results of an earlier run instead of a new one")
    parser.add_argument("--peer", type=pathlib.Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parsed()
    if options.peer:
        train_peer(options.peer, options.threads)
        return
    if options.earlier:
        results = json.loads(pathlib.Path(options.earlier).read_text())
    else:
        results = {"machine": machine(options.threads), "rows": []}
        for name, case in CASES.items():
            if re.search(options.cases, name):
                print(name, file=sys.stderr)
                results["rows"] += measure(name, case, options)
                print(*list(table(results["rows"]))[-2:], sep="\n", file=sys.stderr)
    text = "\n".join([results["machine"], "", *table(results["rows"]), ""])
    print(text, end="")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    if options.markdown:
        pathlib.Path(options.markdown).write_text(text)


if __name__ == "__main__":
    main()
