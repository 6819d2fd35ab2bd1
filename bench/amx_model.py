#!/usr/bin/env python3
"""What bf16 attention should cost on a core with AMX: predicted from the object code, not measured.

    bench/amx_model.py [--object FILE] [--loops]

No machine with AMX is at hand, but the costs of its instructions were measured once on one (Sapphire
Rapids class, 2.9 GHz); they are the constants below. This script takes the vector loops of the AMX kernels
out of the object code (objdump) and lets llvm-mca-19 count their cycles; tile instructions cost what was
measured, and so does what surrounds the kernels (on Zen 4, where it is the same code).
--loops prints the loops that were found.
"""

import argparse
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
OBJECT = ROOT / "build/release/src/CMakeFiles/rapt_kernels.dir/kernels/bf16_kernels.cpp.o"

GHZ = 2.9
PEAK = 2926 / GHZ  # flops a cycle
PRODUCT = 69 / 4  # cycles of a tile product with operands in L1; 66 / 4 from registers
LOAD, STORE = 33 / 4, 17  # of a tile; loads hide behind products as long as they are fewer
WAIT = 120  # guessed: from a phase's last row to the next one's first result (store, load, 52 for a product)
WAKE, ASLEEP_AFTER = 800, 720  # the tile unit
FREE = 16  # vector instructions that a product hides: 64 next to four cost 7 cycles
EXP2_PER_CYCLE = 6.1  # degree 3, measured: the loop that llvm-mca is calibrated with

# llvm-mca 19 sends 512-bit products, multiply-adds, vreduceps, vscalefps and maxima of this CPU to one port;
# measured are two a cycle, as many as additions.
TWO_A_CYCLE = re.compile(r"^(vfn?m(add|sub)\d*ps|vmulps|vreduceps|vscalefps|v(max|min)ps)$")

# Nanoseconds around a visit of 64 x 64 pairs: packing, masks, sums into f64, results. Measured with
# `perf record -e cpu-clock` on Zen 4 (RAPT_ISA=AVX512-BF16): time outside the kernels' products and softmax.
# The second number: how often the tile unit falls asleep there (a pass over sums, tiles packed or finished).
AROUND = {"full 64": (180, 0.04), "full 128": (400, 0.04), "causal 64": (310, 0.05), "window 64": (900, 0.2),
          "backward 64": (1680, 0.2)}


def functions(path):
    """{name: [(address, instruction)]} of the AMX kernels."""
    text = subprocess.run(["objdump", "-dC", "--no-show-raw-insn", path], check=True, capture_output=True, text=True)
    found, body = {}, None
    for line in text.stdout.splitlines():
        if head := re.match(r"[0-9a-f]+ <(.*)>:$", line):
            body = found.setdefault(head[1], []) if "N_AVX3" in head[1] and "TilePairs" in head[1] else None
        elif body is not None and (code := re.match(r" *([0-9a-f]+):\t(.*?)\s*(#.*)?$", line)):
            body.append((int(code[1], 16), code[2].strip()))
    return found


def loops(body):
    """Bodies of loops that have no loop or tile instruction inside."""
    for address, code in body:
        jump = re.match(r"j\w+ +([0-9a-f]+) ", code)
        if not jump or int(jump[1], 16) > address:
            continue
        inside = [c for a, c in body if int(jump[1], 16) <= a <= address]
        back = [c for a, c in body if int(jump[1], 16) <= a < address and (j := re.match(r"j\w+ +([0-9a-f]+) ", c))
                and int(jump[1], 16) <= int(j[1], 16) <= a]
        if not back and not any("tmm" in c or "call" in c for c in inside):
            yield inside


def loop_of(found, name, masked):
    """The loop of a kernel that exponentiates."""
    fits = [loop for function, body in found.items() if name in function for loop in loops(body)
            if any("vscalef" in c for c in loop)
            and masked == any("blendmps" in c or "{z}" in c for c in loop)]
    return min(fits, key=len)


def prepared(code):
    """An instruction as llvm-mca is to see it."""
    name, _, rest = code.partition(" ")
    rest = re.sub(r"<.*>", "", rest).strip()
    if name.startswith("j"):
        return f"{name} elsewhere"
    if TWO_A_CYCLE.match(name):
        operands = rest.split(",")
        if name == "vreduceps":
            operands = [operands[1], operands[1], operands[2]]
        rest, name = ",".join(operands), "vaddps"
    return f"{name} {rest}"


def cycles(loop):
    """Of one time around."""
    source = "\n".join(prepared(code) for code in loop) + "\n"
    run = subprocess.run(["llvm-mca-19", "-mtriple=x86_64", "-mcpu=sapphirerapids", "-iterations=200"],
                         input=source, check=True, capture_output=True, text=True)
    return int(re.search(r"Total Cycles: +(\d+)", run.stdout)[1]) / 200


def calibration():
    """Measured cycles of exp2 over those of llvm-mca."""
    one = ["vmovups {a}(%rax),%zmm{x}", "vreduceps $9,%zmm{x},%zmm{f}", "vmovaps %zmm28,%zmm{p}",
           "vfmadd132ps %zmm{f},%zmm29,%zmm{p}", "vfmadd132ps %zmm{f},%zmm30,%zmm{p}",
           "vfmadd132ps %zmm{f},%zmm31,%zmm{p}", "vscalefps %zmm{x},%zmm{p},%zmm{p}", "vmovups %zmm{p},{a}(%rbx)"]
    loop = [code.format(a=64 * i, x=3 * i, f=3 * i + 1, p=3 * i + 2) for i in range(4) for code in one]
    return 4 * 16 / EXP2_PER_CYCLE / cycles(loop + ["add $256,%rax", "cmp %rax,%rcx", "jne 0 "])


def count(loop):
    return sum("zmm" in c and not re.match(r"v(mov|broadcast)\w+ ", c) for c in loop)


class Cost:
    """What some work consists of; its cycles with one thing after the other, and with tile stores hidden behind
    anything and vector instructions behind products."""

    def __init__(self, products=0, loads=0, stores=0, vector=0, waits=0, wakes=0):
        self.parts = [products, loads, stores, vector, waits, wakes]

    def __add__(self, other):
        return Cost(*(a + b for a, b in zip(self.parts, other.parts)))

    def __rmul__(self, times):
        return Cost(*(times * a for a in self.parts))

    def apart(self):
        products, loads, stores, vector, waits, wakes = self.parts
        return max(PRODUCT * products, LOAD * loads) + STORE * stores + vector + WAIT * waits + WAKE * wakes

    def overlapping(self):
        products, _, stores, vector, _, _ = self.parts
        return self.apart() - STORE * stores - min(vector, products * FREE / 2)


def scores(dim):
    """16 x 64 products of `dim` terms."""
    return dim // 32 * Cost(products=4, loads=5) + Cost(stores=4)


def gather(dim):
    """16 x dim, 64 terms, added to what is there."""
    return dim // 64 * Cost(products=8, loads=14, stores=4)


def visit_forward(dim, softmax):
    """64 x 64 pairs in four blocks."""
    return 4 * (scores(dim) + gather(dim) + Cost(vector=softmax, waits=1))


def visit_backward(dim, slopes):
    """S, dP and dQ in blocks of 16, and all of dV and dK."""
    blocks = 4 * (2 * scores(dim) + gather(dim) + Cost(vector=slopes, waits=2))
    return blocks + 2 * (dim // 16 * gather(64) + Cost(waits=1))


def throw_away():
    """A kernel whose speed was measured on that machine: 32 x 64 blocks, 347 cycles of softmax for 16 rows."""
    gap = 2 * 347 + WAIT
    return 2 * (scores(64) + gather(64) + Cost(vector=347)) + Cost(waits=2, wakes=gap > ASLEEP_AFTER)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--object", default=OBJECT, help="bf16_kernels.cpp.o of a release build")
    parser.add_argument("--loops", action="store_true")
    options = parser.parse_args()
    found = functions(options.object)
    scale = calibration()
    measured = 16 / EXP2_PER_CYCLE
    print(f"exp2 of degree 3: measured {measured:.2f} cycles a vector, llvm-mca {measured / scale:.2f}\n")

    phases = {}  # cycles, vector instructions of 16 rows of 64
    for name, kernel, masked in (("softmax", "VisitPairs", False), ("softmax, masked", "VisitPairs", True),
                                 ("backward", "DifferentiatePairs", False)):
        loop = loop_of(found, kernel, masked)
        share = 64 / sum("vscalef" in c for c in loop)
        phases[name] = cycles(loop) * scale * share, count(loop) * share
        if options.loops:
            print(name, *loop, sep="\n  ")
    print("| 16 rows of 64 | vector instructions | cycles |\n|---|---|---|")
    for name, (time, instructions) in phases.items():
        print(f"| {name} | {instructions:.0f} | {time:.0f} |")

    softmax, masked, slopes = (phases[name][0] for name in ("softmax", "softmax, masked", "backward"))
    # A query tile of the window: seven whole visits, two where a quarter of the blocks is half hidden, and one
    # of the first token, half of it; 64 x 514 of the ten tiles' pairs are useful.
    window = 7 * visit_forward(64, softmax) + 2.25 * visit_forward(64, masked)
    useful = (4096 + 1) / (4096 + 64)  # of the pairs that causal visits compute
    cases = [("full, dim 64, forward", 0.28, 4 * 64 * 4096, visit_forward(64, softmax), "full 64"),
             ("full, dim 128, forward", 0.38, 4 * 128 * 4096, visit_forward(128, softmax), "full 128"),
             ("causal, dim 64, forward", 0.25, 4 * 64 * 4096 * useful, visit_forward(64, softmax), "causal 64"),
             ("causal, dim 64, backward", 0.20, 10 * 64 * 4096 * useful, visit_backward(64, slopes), "backward 64"),
             ("window(256,256) or token 0, forward", 0.17, 4 * 64 * 64 * 51.4, 0.1 * window, "window 64")]
    print("\n| case | bar | apart | overlapping | cycles a visit | around it |\n|---|---|---|---|---|---|")
    for name, bar, flops, kernels, around in cases:
        rest = AROUND[around][0] * GHZ + AROUND[around][1] * WAKE
        apart, overlapping = (flops / PEAK / (time + rest) for time in (kernels.apart(), kernels.overlapping()))
        print(f"| {name} | {bar:.2f} | {apart:.2f} | {overlapping:.2f} "
              f"| {kernels.apart():,.0f} to {kernels.overlapping():,.0f} | {rest:,.0f} |")
    known = throw_away()
    print(f"\nThe throw-away kernel of 32 x 64 blocks: {4 * 64 * 32 * 64 / PEAK / known.apart():.2f} apart, "
          f"{4 * 64 * 32 * 64 / PEAK / known.overlapping():.2f} overlapping; measured 0.22 to 0.24.")


if __name__ == "__main__":
    main()
