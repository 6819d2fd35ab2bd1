#!/usr/bin/env python3
"""rapt against its peers in one process, calls in turns: times, memory, and whether they agree.

    bench/peers.py [--cases REGEX] [--repeats N] [--seconds S] [--threads N]
                   [--json FILE] [--markdown FILE] [--plot FILE.png] [--from FILE.json]

Peers are torch SDPA, compiled FlexAttention, Transformers' Longformer, LED, Reformer and BigBird, and
ONNX Runtime and OpenVINO if they are installed (bench/requirements.txt). A case runs every contestant
to warm up and compare answers, and then in turns, so that a busy machine hurts all alike. Extra
memory is what one call has resident at its peak beyond its operands, in a process of its own.
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
        file.write("5")  # the peak starts anew; getrusage's would be that of the parent
    before = status_kb("VmRSS")
    call()
    return status_kb("VmHWM") - before


class Children:
    """Processes that do one thing each, forked from one that has imported all and run nothing."""

    def __init__(self):
        os.environ["PYTHONPATH"] = os.pathsep.join(
            filter(None, [HERE, os.environ.get("PYTHONPATH")]))
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["peer_cases", "transformers", "rapt._torch"])

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


def bars(case, row, mine):
    """What a row has to reach, and whether it does: [(text, reached)]."""
    found = []
    if case.longest_us and row is mine:
        found.append((f"≤ {case.longest_us:g} µs", 1e3 * row["median_ms"] <= case.longest_us))
    if row is mine or not row["first"]:
        return found
    if case.faster:
        found.append((f"≥ {case.faster:g}×", row["ratio"] >= case.faster))
    if case.memory:
        found.append((f"≤ 1/{1 / case.memory:g} memory",
                      mine["extra_mb"] <= case.memory * row["extra_mb"]))
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
    peers = [who for who in calls if who != "rapt"]
    rows = [{"case": name, "who": who, "first": who in peers[:1],
             "median_ms": 1e3 * statistics.median(t), "least_ms": 1e3 * min(t),
             "most_ms": 1e3 * max(t), "rounds": rounds, "difference": differ[who],
             "agrees": differ[who] <= case.tolerance,
             "extra_mb": children.run(extra_kb, name, who, options.threads) / 1024}
            for who, t in times.items()]
    for row in rows:
        row["ratio"] = row["median_ms"] / rows[0]["median_ms"]
        row["bars"] = bars(case, row, rows[0])
    return rows


def milliseconds(row):
    def three_digits(ms):
        return f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}"
    return "{} ({}–{})".format(*(three_digits(row[x]) for x in ("median_ms", "least_ms", "most_ms")))


def table(results):
    yield ("| case | contestant | ms: median (least–most) | extra MB | peer / rapt | must reach | does | "
           "differs by |")
    yield "|---|---|--:|--:|--:|---|---|--:|"
    case = None
    for r in results:
        ratio, differs = f"{r['ratio']:.2f}×", f"{r['difference']:.0e}"
        if r["who"] == "rapt":
            ratio = differs = ""
        if not r["agrees"]:
            differs += " **too much**"
        yield (f"| {r['case'] if r['case'] != case else ''} | {r['who']} | {milliseconds(r)} | "
               f"{r['extra_mb']:.0f} | {ratio} | {', '.join(text for text, _ in r['bars'])} | "
               f"{', '.join('yes' if reached else '**no**' for _, reached in r['bars'])} | "
               f"{differs} |")
        case = r["case"]


def plot(results, file):
    """How many times as long each peer takes, and the bar as a tick."""
    try:
        import matplotlib
    except ImportError:
        print("peers: no matplotlib, no plot", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    peers = [r for r in reversed(results) if r["who"] != "rapt"]
    figure, axes = pyplot.subplots(figsize=(11, 1 + 0.3 * len(peers)), layout="constrained")
    colours = ["#1f4e79" if all(ok for _, ok in r["bars"]) else "#c55a11" for r in peers]
    axes.barh(range(len(peers)), [r["ratio"] for r in peers], color=colours)
    for y, r in enumerate(peers):
        goal = next((float(text[2:-1]) for text, _ in r["bars"] if text.endswith("×")), 0)
        axes.text(max(r["ratio"], goal), y, f" {r['ratio']:.2f}×", va="center", fontsize=7)
        if goal:
            axes.plot([goal, goal], [y - 0.45, y + 0.45], color="black", linewidth=1.5)
    axes.set_yticks(range(len(peers)), [f"{r['case']}: {r['who']}" for r in peers], fontsize=7)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}×")
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.margins(x=0.08)
    axes.set_xlabel("time of the peer / time of rapt; the tick is what rapt must reach")
    figure.savefig(file, dpi=130)


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
    parser.add_argument("--markdown")
    parser.add_argument("--plot")
    parser.add_argument("--from", dest="earlier", help="results of an earlier run instead of a new one")
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
        print(name, file=sys.stderr)
        results["rows"] += measure(name, case, options, children)
    return results


def main():
    options = parsed()
    if options.list:
        from peer_cases import cases

        print("\n".join(cases()))
        return
    if options.earlier:
        results = json.loads(pathlib.Path(options.earlier).read_text())
    else:
        results = run(options)
    text = "\n".join([results["machine"], "", *table(results["rows"]), ""])
    print(text, end="")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    if options.markdown:
        pathlib.Path(options.markdown).write_text(text)
    if options.plot and results["rows"]:
        plot(results["rows"], options.plot)


if __name__ == "__main__":
    main()
