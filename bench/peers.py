#!/usr/bin/env python3
"""Times rapt and other libraries on the same work in one process: time, memory, and whether the answers agree.

    bench/peers.py [--cases REGEX] [--repeats N] [--seconds S] [--threads N] [--json FILE]

The others are torch SDPA, compiled FlexAttention, Transformers' Longformer, LED, Reformer and BigBird, and
ONNX Runtime and OpenVINO if they are installed (bench/requirements.txt). Every contestant of a case runs once
to warm up and to compare answers. Then they take turns, so that a busy machine slows all of them alike. Extra
memory is the peak resident memory of one call beyond its operands, measured in a process of its own.

`--json bench/results/peers.json` followed by `scripts/update-numbers` rewrites the tables and charts of the
documentation.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import re
import statistics
import sys
import time

THREADS = next((sys.argv[i + 1] for i, x in enumerate(sys.argv[:-1]) if x == "--threads"), None)
if THREADS:  # before any library reads it
    os.environ["RAPT_THREADS"] = os.environ["OMP_NUM_THREADS"] = THREADS
HERE = str(pathlib.Path(__file__).resolve().parent)


def timed(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def status_kb(field):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field))


def extra_kb(name, who, threads):
    """What one call has resident at its peak, beyond what was there before."""
    import torch
    from peer_cases import F32, cases, dense

    torch.set_num_threads(threads)
    call = cases()[name].make()[who]
    for contestant in list(dense(1, 8, F32, True, True).values()):
        contestant()  # whatever either library loads or starts at its first call
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # resets the peak; getrusage would report the parent's
    before = status_kb("VmRSS")
    call()
    return status_kb("VmHWM") - before


class Children:
    """Processes that do one thing each, forked from one that has imported all and run nothing."""

    def __init__(self):
        os.environ["PYTHONPATH"] = os.pathsep.join(
            filter(None, [HERE, os.environ.get("PYTHONPATH")]))
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["peer_cases", "transformers", "rapt._torch.functions"])

    def run(self, function, *arguments):
        with self._context.Pool(1) as pool:
            answer = pool.apply(function, arguments)
            pool.close()
            pool.join()
            return answer


def difference(mine, theirs):
    """Largest, relative to the largest number of each answer."""
    import torch

    mine, theirs = ([torch.as_tensor(x).float() for x in (y if isinstance(y, list) else [y])]
                    for y in (mine, theirs))
    return max(((a - b).abs().max() / b.abs().max().clamp(min=1e-30)).item()
               for a, b in zip(mine, theirs))


def goals(case, rows):
    """What we aim at in a case, and whether it is reached: [(text, reached)]. Speed and memory are against the
    first of the others."""
    mine, found = rows[0], []
    if case.longest_us:
        found.append((f"≤ {case.longest_us:g} µs", 1e3 * mine["median_ms"] <= case.longest_us))
    if case.faster:
        found.append((f"≥ {case.faster:g}×", rows[1]["ratio"] >= case.faster))
    if case.memory:
        found.append((f"≤ 1/{1 / case.memory:g} memory", mine["extra_mb"] <= case.memory * rows[1]["extra_mb"]))
    return found


def warmed_up(calls):
    """About how long a call takes, and how far answers are from rapt's."""
    once, differ, mine = {}, {}, None
    for who, call in calls.items():
        begin = time.perf_counter()
        answer = call()
        once[who] = time.perf_counter() - begin
        mine = answer if mine is None else mine
        differ[who] = difference(mine, answer)
        if once[who] < 1:  # what happens at first calls only would matter
            once[who] = timed(call)
    return once, differ


def measure(name, case, options, children):
    calls = case.make()
    once, differ = warmed_up(calls)
    # Calls of many seconds differ little from each other.
    least = 3 if sum(once.values()) < options.seconds else 2
    rounds = min(options.repeats, max(least, int(options.seconds / sum(once.values()))))
    inner = {who: max(1, int(0.002 / t)) for who, t in once.items()}
    times = {who: [] for who in calls}
    for _ in range(rounds):
        for who, call in calls.items():
            times[who].append(timed(lambda: [call() for _ in range(inner[who])]) / inner[who])
    rows = [{"case": name, "who": who,
             "median_ms": 1e3 * statistics.median(t), "least_ms": 1e3 * min(t),
             "most_ms": 1e3 * max(t), "rounds": rounds, "difference": differ[who],
             "agrees": differ[who] <= case.tolerance,
             "extra_mb": children.run(extra_kb, name, who, options.threads) / 1024}
            for who, t in times.items()]
    for row in rows:
        row["ratio"] = row["median_ms"] / rows[0]["median_ms"]
    return rows


def three_digits(ms):
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}"


def report(case, rows):
    """A case for the terminal, with our goals."""
    for row in rows:
        spread = " to ".join(three_digits(row[x]) for x in ("least_ms", "most_ms"))
        line = (f"  {row['who']:30} {three_digits(row['median_ms']):>7} ms ({spread}), {row['extra_mb']:.0f} MB extra, "
                f"{row['ratio']:.2f} of rapt's time, differs by {row['difference']:.0e}")
        yield line + ("" if row["agrees"] else ", TOO MUCH")
    for text, reached in goals(case, rows):
        yield f"  goal {text}: {'reached' if reached else 'MISSED'}"


def machine():
    import torch

    import rapt

    with open("/proc/cpuinfo") as file:
        cpu = next((x.split(":", 1)[1].strip() for x in file if x.startswith("model name")), "a CPU")
    peers = [f"torch {torch.__version__}"]
    for module in ("transformers", "onnxruntime", "openvino"):
        try:
            peers.append(f"{module} {__import__(module).__version__.split('-')[0]}")
        except ImportError:
            print(f"peers: no {module}, its cases are skipped", file=sys.stderr)
    return (f"{cpu}, {rapt.Context().threads} threads, rapt {rapt.__version__} on "
            f"{rapt.Context().isa}; {', '.join(peers)}.")


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default="", help="only those whose name matches")
    parser.add_argument("--repeats", type=int, default=15, help="rounds of a case, at most")
    parser.add_argument("--seconds", type=float, default=8, help="for the rounds of a case, about")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--list", action="store_true", help="names of the cases")
    parser.add_argument("--json", help="write results there")
    return parser.parse_args()


def run(options):
    import torch
    from peer_cases import cases, have

    import rapt

    options.threads = options.threads or rapt.Context().threads
    torch.set_num_threads(options.threads)
    results = {"machine": machine(), "rows": []}
    children = Children()
    for name, case in cases().items():
        if not re.search(options.cases, name):
            continue
        if re.search("Longformer|Reformer|BigBird|LED|T5", name) and not have("transformers"):
            continue
        print(name, flush=True)
        rows = measure(name, case, options, children)
        print(*report(case, rows), sep="\n", flush=True)
        results["rows"] += rows
    return results


def main():
    options = parsed()
    if options.list:
        from peer_cases import cases

        print("\n".join(cases()))
        return
    results = run(options)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
