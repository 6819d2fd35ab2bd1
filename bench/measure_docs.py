#!/usr/bin/env python3
"""Measures what the guides show and writes it to bench/results; `scripts/update-numbers` puts it into the pages.

    bench/measure_docs.py attention strict hashed-decode lsh-recall translator copy recall heads-time [--rapt FILE]

Without names it measures all of them, which takes about half an hour on two cores. Run it on a quiet machine.
Comparisons with other libraries have scripts of their own: bench/peers.py, bench/model_peers.py and
bench/train_peers.py, each with --json.
"""

import argparse
import json
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench/results"
ATTENTION_CASES = ["full", "causal", "longformer", "longformer-million"]


def run(rapt, *words):
    print("rapt", *words, file=sys.stderr)
    return subprocess.run([rapt, *map(str, words)], check=True, stdout=subprocess.PIPE, text=True).stdout


def rows_of(rapt, *words):
    return json.loads(run(rapt, *words, "--json"))


def cpu_name():
    found = re.search(r"^model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found.group(1) if found else "unknown CPU"


def attention(rapt):
    rows = rows_of(rapt, "bench", "attention", "--case", *ATTENTION_CASES, "--threads", 1, 2)
    (RESULTS / "attention.json").write_text(json.dumps({"cpu": cpu_name(), "rows": rows}, indent=1) + "\n")


def best_us(rapt, *words):
    """{(dtype, keys): least time of three runs}"""
    least = {}
    for _ in range(3):
        for row in rows_of(rapt, "bench", "decode", "--keys", 512, 8192, "--heads", 16, "--threads", 1, *words):
            at = row["dtype"], row["keys"]
            least[at] = min(least.get(at, row["best_us"]), row["best_us"])
    return least


def strict(rapt):
    types, rows = ("f32", "bf16", "int8"), []
    for kv_heads in (16, 4):
        usual, slow = (best_us(rapt, "--kv-heads", kv_heads, *extra) for extra in ((), ("--strict",)))
        rows.append([f"16 query heads, {kv_heads} key heads"] + [
            ", ".join(f"{slow[t, keys] / usual[t, keys]:.1f}×" for keys in (512, 8192)) for t in types])
    return ["512 and 8,192 keys", *types], rows


def hashed_decode(rapt):
    tokens = (1024, 4096, 16384, 65536, 262144)
    runs = [rows_of(rapt, "bench", "lsh", "--decode", "--tokens", *tokens, "--rounds", 4, "--buckets", "16x32",
                    "--threads", 1) for _ in range(3)]
    lines = []
    for title, field in (("hashed", "step_us"), ("all keys", "all_keys_us")):
        least = [min(one[i][field] for one in runs) for i in range(len(tokens))]
        lines.append([f"µs per token, {title}"] + [f"{us:,.0f}" for us in least])
    return ["tokens in the cache", *(f"{n:,}" for n in tokens)], lines


def lsh_recall(rapt):
    kinds, rounds = ("32", "128", "16x32"), (1, 2, 4, 8)
    found = {(row["rounds"], str(row["buckets"])): row for row in rows_of(
        rapt, "bench", "lsh", "--recall", "--tokens", 4096, "--rounds", *rounds, "--buckets", *kinds)}
    names = [kind.replace("x", " × ") for kind in kinds]
    head = ["rounds", "keys met"] + [f"top 16, {name} buckets" for name in names] + [f"softmax, {name}" for name in names]
    keys = sorted({at[1] for at in found}, key=lambda text: list(found).index((1, text)))
    lines = [[n, f"{found[n, keys[0]]['keys_met']:.2f}", *(f"{found[n, key]['top_recall']:.2f}" for key in keys),
              *(f"{found[n, key]['mass_recall']:.2f}" for key in keys)] for n in rounds]
    return head, lines


def curve(config, data, steps, before=()):
    """A measure that trains and lists the evaluations of some steps."""
    def measured(rapt):
        with tempfile.TemporaryDirectory() as folder:
            for words in before:
                subprocess.run([sys.executable, ROOT / words[0], *words[1:]], check=True, cwd=folder)
            begin = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([rapt, "train", "--config", ROOT / "examples" / config, "--data", data, "--out", "run"],
                           check=True, cwd=folder)
            end = resource.getrusage(resource.RUSAGE_CHILDREN)
            lines = map(json.loads, pathlib.Path(folder, "run", "metrics.jsonl").read_text().splitlines())
            found = {line["step"]: line for line in lines if "exact" in line}
        print(f"CPU time: {end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime:.0f} s", file=sys.stderr)
        return (["step", "evaluation loss", "correct tokens", "exact items"],
                [[step, f"{found[step]['evaluation_loss']:.4f}", f"{100 * found[step]['accuracy']:.2f} %",
                  f"{100 * found[step]['exact']:.2f} %"] for step in steps if step in found])
    return measured


def heads_time(rapt):
    lines = []
    for model, tokens in (("minilm", 512), ("smollm2", 256), ("smollm2", 1024), ("smollm2", 2048)):
        begin = time.monotonic()
        subprocess.run([rapt, "heads", model, "--text", ROOT / "docs/patterns.md", "--limit", str(tokens)], check=True,
                       stdout=subprocess.DEVNULL)
        seconds = time.monotonic() - begin
        lines.append([model, f"{tokens:,}", f"{seconds:.0f} s"])
    return ["model", "tokens", "time"], lines


MEASURES = {
    "strict": strict, "hashed-decode": hashed_decode, "lsh-recall": lsh_recall, "heads-time": heads_time,
    "translator": curve("digits.toml", "digits/train.tsv", (100, 200, 300, 400, 600, 800, 1000),
                        before=[("examples/digits_to_words.py", "digits")]),
    "copy": curve("copy.toml", "task:copy", (100, 200, 300)),
    "recall": curve("recall.toml", "task:recall", (25, 50, 75, 100, 200)),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help="what to measure (default: everything)")
    parser.add_argument("--rapt", default=str(ROOT / "build/release/bin/rapt"))
    options = parser.parse_args()
    known = ["attention", *MEASURES]
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"no measurement is called {unknown[0]}, expected some of: {', '.join(known)}")
    for name in options.names or known:
        if name == "attention":
            attention(options.rapt)
            continue
        columns, rows = MEASURES[name](options.rapt)
        path = RESULTS / "tables.json"
        tables = json.loads(path.read_text())
        tables[name] = {"machine": cpu_name(), "columns": columns, "rows": rows}
        path.write_text(json.dumps(tables, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
