"""Tables and charts of the documentation, made of what is in bench/results: nothing is measured here."""

import json
import pathlib
import re

import charts

RESULTS = pathlib.Path(__file__).resolve().parent / "results"


def stored(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


WORDS = {"fastest other", "library", "engine", "pass"}  # columns besides the first that are not numbers


def table(head, rows):
    """Markdown."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "".join("---|" if i == 0 or name in WORDS else "--:|" for i, name in enumerate(head))
    for row in rows:
        yield "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"


# ---- rapt against the peak of the machine: rapt bench attention --json

def megabytes(number):
    return "?" if number is None else f"{number / 1e6:.0f} MB"


def attention():
    results, groups = stored("attention"), {}
    for row in results["rows"]:
        groups.setdefault((row["case"], row["pass"]), []).append(row)
    groups = list(groups.values())
    threads = [row["threads"] for row in groups[0]]
    yield f"{results['cpu']}, {results['rows'][0]['isa']}, f32. Medians; the peak is measured between the runs.\n"
    head = ["pattern", "pass", "tokens", "heads × dim"]
    for count in threads:
        head += [f"{count} thread{'s'[:count > 1]}", "of peak"]
    rows = []
    for group in groups:
        row = group[0]
        cells = [f"`{row['pattern']}`", row["pass"], f"{row['tokens']:,}", f"{row['heads']} × {row['dim']}"]
        for r in group:
            cells += [charts.milliseconds(r["time_ms"]), f"{100 * r['fraction_of_peak']:.0f} %"]
        rows.append([*cells, megabytes(group[-1]["extra_bytes"])])
    yield from table([*head, "extra memory"], rows)


# ---- rapt against other libraries: bench/peers.py --json

GROUPS = {
    "Dense attention, f32": r"^f32 (full|causal),",
    "Dense attention, bf16": r"^bf16 (full|causal),",
    "Decode: one query, 32 heads over 8 key heads, bf16": r"^bf16 decode",
    "Windows and biases, f32": r"window 256|T5 bias",
    "Attention of long-document models, f32": r"Longformer|Reformer|BigBird|LED",
    "The smallest call: 8 tokens, one head": r"^tiny",
}
# What the two charts show, and how they call it. Training is forward and backward.
README_CASES = {
    "f32 full, 16 heads x 64, 4096 tokens, forward": "Full attention, f32, 4,096 tokens",
    "bf16 causal, 16 heads x 64, 4096 tokens, forward + backward": "Causal training, bf16, 4,096 tokens",
    "bf16 decode, 32 / 8 heads x 128, 65536 keys": "Decode, bf16, 65,536 keys",
    "f32 causal window 256, 8 heads x 64, 16384 tokens, forward": "Sliding window, f32, 16,384 tokens",
    "f32 causal window 256, 8 heads x 64, 16384 tokens, forward + backward":
        "Sliding-window training, f32, 16,384 tokens",
    "f32 Longformer core, 12 heads x 64, window 512, 1 global, 16384 tokens, forward + backward":
        "Longformer training, f32, 16,384 tokens",
}
PAGE_CASES = {
    "tiny call, torch": "The smallest call, 8 tokens",
    "f32 full, 16 heads x 64, 4096 tokens, forward": "Full, f32, 4,096 tokens",
    "f32 causal, 16 heads x 64, 4096 tokens, forward": "Causal, f32, 4,096 tokens",
    "f32 causal, 16 heads x 64, 2048 tokens, forward + backward": "Causal training, f32, 2,048 tokens",
    "bf16 causal, 16 heads x 64, 4096 tokens, forward + backward": "Causal training, bf16, 4,096 tokens",
    "bf16 causal, 16 heads x 64, 4096 tokens, forward": "Causal, bf16, 4,096 tokens",
    "f32 causal window 256, 8 heads x 64, 16384 tokens, forward": "Sliding window, f32, 16,384 tokens",
    "f32 BigBird layer, 8 heads x 64, 4096 tokens, forward + backward": "BigBird training, f32, 4,096 tokens",
    "f32 LED layer, 8 heads x 64, window 512, 4096 tokens, forward + backward":
        "LED training, f32, 4,096 tokens",
    "f32 T5 bias, 8 heads x 64, 4096 tokens, forward + backward": "T5 bias training, f32, 4,096 tokens",
    "f32 Reformer LSH core, 8 heads x 64, chunk 64, 4 rounds, 16384 tokens, forward + backward":
        "Reformer training, f32, 16,384 tokens",
    "f32 Longformer core, 12 heads x 64, window 512, 1 global, 16384 tokens, forward + backward":
        "Longformer training, f32, 16,384 tokens",
    "bf16 decode, 32 / 8 heads x 128, 65536 keys": "Decode, bf16, 65,536 keys",
    "f32 causal window 256, 8 heads x 64, 16384 tokens, forward + backward":
        "Sliding-window training, f32, 16,384 tokens",
}


def peer_cases():
    """{case: (rapt's row, those of others, fastest first)}"""
    found = {}
    for row in stored("peers")["rows"]:
        found.setdefault(row["case"], []).append(row)
    return {case: (rows[0], sorted(rows[1:], key=lambda row: row["median_ms"])) for case, rows in found.items()}


def readable(case):
    """f32 causal, 16 heads x 64, 4096 tokens: as a table under the heading of its type calls it."""
    case = re.sub(r"^(f32|bf16) ", "", case).replace(" x ", " × ").replace(" core", "")
    case = re.sub(r"^decode, 32 / 8 heads × 128, ", "dim 128, ", case)
    return re.sub(r"\d{4,}", lambda number: f"{int(number.group()):,}", case)


def bar(case, label):
    mine, others = peer_cases()[case]
    best = others[0]
    return {"label": label, "other": best["who"], "other_ms": best["median_ms"], "rapt_ms": mine["median_ms"],
            "ratio": best["ratio"]}


def memory(mine, other):
    return f"{mine['extra_mb']:.0f} / {other['extra_mb']:.0f} MB"


def readme_table():
    results = stored("peers")
    yield f"{results['machine']} Medians. \"Faster\" is the other's time over rapt's.\n"
    rows = []
    for case, label in README_CASES.items():
        mine, others = peer_cases()[case]
        best = others[0]
        rows.append([label, charts.milliseconds(mine["median_ms"]), f"{best['who']}, "
                     f"{charts.milliseconds(best['median_ms'])}", f"{charts.times(best['ratio'])}",
                     memory(mine, best)])
    yield from table(["case", "rapt", "fastest other", "faster", "extra memory, rapt / other"], rows)


def peers():
    yield f"{stored('peers')['machine']}\n"
    for title, pattern in GROUPS.items():
        cases = {case: found for case, found in peer_cases().items() if re.search(pattern, case)}
        yield f"### {title}\n"
        rows = []
        for case, (mine, others) in cases.items():
            cells = [readable(case), charts.milliseconds(mine["median_ms"])]
            if others:
                best = others[0]
                cells += [best["who"], charts.milliseconds(best["median_ms"]), charts.times(best["ratio"]),
                          memory(mine, best)]
            rows.append(cells if others else [*cells, "none measured", "", "", f"{mine['extra_mb']:.0f} MB"])
        yield from table(["case", "rapt", "fastest other", "its time", "faster", "extra memory, rapt / other"],
                         rows)
        yield ""


def all_peers():
    def spread(row):
        return "{} ({} to {})".format(*(charts.milliseconds(row[x]) for x in ("median_ms", "least_ms", "most_ms")))

    rows = []
    for case, (mine, others) in peer_cases().items():
        for row in (mine, *others):
            differs = "" if row is mine else f"{row['difference']:.0e}" + " **too much**" * (not row["agrees"])
            rows.append([case.replace(" x ", " × ") if row is mine else "", row["who"], spread(row),
                         f"{row['extra_mb']:.0f}", "" if row is mine else f"{row['ratio']:.2f}", differs])
    yield from table(["case", "library", "median (least to most)", "extra MB", "times rapt's time", "largest difference"],
                     rows)


def speed_chart():
    rows = [bar(case, label) for case, label in README_CASES.items()]
    return charts.bars(f"Attention on a CPU: {charts.span(rows)} times as fast as the fastest other library",
                       stored("peers")["machine"], rows)


def peers_chart():
    rows = sorted((bar(case, label) for case, label in PAGE_CASES.items()), key=lambda row: row["ratio"])
    return charts.bars(f"{len(rows)} attention cases: {charts.span(rows)} times as fast as the fastest other library",
                       stored("peers")["machine"], rows)


# ---- whole models: bench/model_peers.py --json

def of_model(case):
    """batch 32, alike 64: a case of MiniLM. Those of SmolLM2 read or write."""
    case = case.replace("alike 64", "64 tokens each").replace("mixed 8-128", "8 to 128 tokens each")
    return f"SmolLM2, {case} tokens" if re.match("read|write", case) else f"MiniLM, {case}"


def models():
    """Each case against the fastest engine that is not rapt."""
    results, rows = stored("models"), []
    yield f"{results['machine']} Medians. \"Faster\" is the median of the ratios of all turns.\n"
    for case, line in results["cases"].items():
        (_, mine), *_ = line.items()
        name, best = min(((name, x) for name, x in line.items() if not name.startswith("rapt")),
                         key=lambda each: each[1]["ms"])
        rows.append([of_model(case), charts.milliseconds(mine["ms"]), name, charts.milliseconds(best["ms"]),
                     charts.times(best["ratio"])])
    yield from table(["case", "rapt", "fastest other", "its time", "faster"], rows)


def all_models():
    rows = []
    for case, line in stored("models")["cases"].items():
        for name, x in line.items():
            spread = " to ".join(charts.milliseconds(x[end]) for end in ("best", "worst"))
            rows.append([of_model(case), name.removesuffix(" writes"), f"{charts.milliseconds(x['ms'])} ({spread})",
                         f"{x['ratio']:.2f}"])
    yield from table(["case", "engine", "median (best to worst)", "times rapt's time"], rows)


# ---- training steps: bench/train_peers.py --json

def training():
    results = stored("training")
    yield f"{results['machine']} Time of a step; extra memory is that of the first step.\n"
    rows = []
    for mine, other in zip(results["rows"][::2], results["rows"][1::2]):
        rows.append([mine["case"].replace(" x ", " × "), charts.milliseconds(mine["median_ms"]),
                     charts.milliseconds(other["median_ms"]), charts.times(other["ratio"]), memory(mine, other)])
    yield from table(["model, items × tokens", "rapt", "PyTorch", "faster", "extra memory, rapt / PyTorch"], rows)


# ---- tables that are stored as they are printed: bench/measure_docs.py writes them

def plain(name):
    def lines():
        one = stored("tables")[name]
        yield from table(one["columns"], one["rows"])
    return lines


TABLES = {
    "readme": readme_table, "attention": attention, "peers": peers, "all-peers": all_peers, "models": models,
    "all-models": all_models, "training": training,
    **{name: plain(name) for name in (
        "strict", "hashed-decode", "lsh-recall", "translator", "copy", "recall", "heads-time")},
}
CHARTS = {"speed": speed_chart, "peers": peers_chart}
