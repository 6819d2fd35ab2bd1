"""SVG pictures that need no library: bars of rapt's time against that of others, readable on light and dark pages."""

import html

WIDTH, ROW, TOP, BOTTOM = 860, 50, 84, 38
TRACK_X, TRACK_WIDTH = 386, 350

# A card with its own background, so that the text is legible whatever the page behind it looks like.
STYLE = """
  text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
  .card { fill: #ffffff; stroke: #d1d9e0 }
  .soft { fill: #59636e }
  .rapt { fill: #0969da }
  .other { fill: #ccd3da }
  .ratio { fill: #0550ae }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc }
    .card { fill: #151b23; stroke: #3d444d }
    .soft { fill: #9aa4ae }
    .rapt { fill: #4493f8 }
    .other { fill: #4a525b }
    .ratio { fill: #79c0ff }
  }
"""


def text(x, y, words, size=14, kind="", anchor="start", weight=400):
    return (f'<text x="{x:g}" y="{y:g}" font-size="{size}" class="{kind}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{html.escape(words)}</text>')


def rect(x, y, width, height, kind, radius=3):
    return (f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}" class="{kind}"/>')


def svg(width, height, label, parts, style=STYLE):
    body = "\n".join(parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img" aria-label="{html.escape(label)}">\n<style>{style}</style>\n'
            f'{rect(0.5, 0.5, width - 1, height - 1, "card", 8)}\n{body}\n</svg>\n')


def milliseconds(ms):
    """Three digits and a unit: 17.6 ms."""
    if ms >= 1000:
        return f"{ms / 1000:#.3g} s"
    if ms >= 100:
        return f"{ms:.0f} ms"
    return f"{ms:#.3g} ms" if ms >= 0.1 else f"{1000 * ms:#.3g} µs"


def times(ratio):
    """14.6×, 2.2×, 1.06×: a second decimal only where the first would hide the difference."""
    return f"{ratio:.0f}×" if ratio >= 20 else f"{ratio:.1f}×" if ratio >= 1.15 else f"{ratio:.2f}×"


def _row(y, bar):
    longest = max(bar["rapt_ms"], bar["other_ms"])
    yield text(24, y + 16, bar["label"], weight=600)
    yield text(24, y + 34, f"{bar['other']}: {milliseconds(bar['other_ms'])}; rapt: "
                           f"{milliseconds(bar['rapt_ms'])}", size=12, kind="soft")
    yield rect(TRACK_X, y + 4, TRACK_WIDTH * bar["other_ms"] / longest, 26, "other")
    yield rect(TRACK_X, y + 9, TRACK_WIDTH * bar["rapt_ms"] / longest, 16, "rapt")
    yield text(WIDTH - 24, y + 24, times(bar["ratio"]), size=20, kind="ratio", anchor="end", weight=700)


def span(rows):
    """1.06 to 50: the smallest and the largest ratio."""
    ratios = [row["ratio"] for row in rows]
    return f"{times(min(ratios))[:-1]} to {times(max(ratios))[:-1]}"


def bars(title, machine, rows):
    """rows: [{label, other, other_ms, rapt_ms, ratio}]. A grey bar is the other's time, the blue one on it rapt's."""
    height = TOP + len(rows) * ROW + BOTTOM
    parts = [text(24, 34, title, size=18, weight=700), rect(24, 50, 14, 14, "rapt"),
             text(44, 62, "rapt", size=13), rect(88, 50, 14, 14, "other"),
             text(108, 62, "the fastest other library", size=13),
             text(TRACK_X, 62, "time, shorter is better; same inputs, same answers", size=13, kind="soft"),
             text(WIDTH - 24, 62, "times as fast", size=13, kind="soft", anchor="end"),
             text(24, height - 16, machine, size=12, kind="soft")]
    for i, row in enumerate(rows):
        parts += _row(TOP + i * ROW, row)
    return svg(WIDTH, height, f"{title}. " + "; ".join(
        f"{row['label']}: {times(row['ratio'])} against {row['other']}" for row in rows), parts)
