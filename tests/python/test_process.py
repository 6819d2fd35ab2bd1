"""Imports, threads, forks, memory."""

import doctest
import importlib
import io
import multiprocessing
import os
import pkgutil
import subprocess
import sys
import threading

import numpy as np
import pytest

import rapt


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_import_needs_neither_numpy_nor_torch():
    run("""
import sys
sys.modules["numpy"] = sys.modules["torch"] = None  # importing either raises
import array, rapt
x = memoryview(array.array("f", [1.0] * 32)).cast("B").cast("f", [1, 1, 8, 4])
assert rapt.attend(x, x, x, rapt.causal() & rapt.window(2, 0)).tolist()[0][0] == [[1.0] * 4] * 8
""")


def test_numpy_calls_import_no_torch():
    run("""
import sys, numpy as np, rapt
x = np.ones((1, 1, 8, 4), np.float32)
rapt.attend(x, x, x)
rapt.scaled_dot_product_attention(x, x, x)
assert "torch" not in sys.modules
""")


def test_config_names_what_runs():
    text = io.StringIO()
    rapt.show_config(text)
    assert rapt.__version__ in text.getvalue() and rapt.Context().isa in text.getvalue()
    assert rapt.usable_cpus() >= 1 and "scalar" in rapt.supported_isas()


def names_of_modules():
    """Everything but what needs torch."""
    found = pkgutil.walk_packages(rapt.__path__, "rapt.")
    return [m.name for m in found if "._torch." not in m.name and "integrations" not in m.name]


@pytest.mark.parametrize("name", ["rapt", *names_of_modules()])
def test_every_docstring_example_runs(name):
    module = sys.modules.get(name) or importlib.import_module(name)
    assert doctest.testmod(module, raise_on_error=False).failed == 0


def test_everything_public_is_documented():
    for name in rapt.__all__:
        assert getattr(rapt, name).__doc__, name


def big():
    return np.random.default_rng(0).standard_normal((1, 4, 700, 32), dtype=np.float32)


def test_threads_share_the_engine():
    x = big()
    expected = rapt.attend(x, x, x, "causal")
    wrong = []

    def work():
        for _ in range(20):
            if not np.array_equal(rapt.attend(x, x, x, "causal"), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_gil_is_free_while_kernels_run():
    """A thread that only counts gets on while a long call runs."""
    x = np.random.default_rng(0).standard_normal((1, 8, 4000, 64), dtype=np.float32)
    counted, stop = [0], threading.Event()

    def count():
        while not stop.wait(0.001):
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = counted[0]
    rapt.attend(x, x, x)
    during = counted[0] - before
    stop.set()
    thread.join()
    assert during > 3


def in_child(pipe, x, expected):
    pipe.send(np.array_equal(rapt.attend(x, x, x, "causal"), expected))


def test_a_forked_child_can_attend():
    x = big()
    expected = rapt.attend(x, x, x, "causal")  # the parent's threads are running now
    context = multiprocessing.get_context("fork")
    for _ in range(5):
        mine, theirs = context.Pipe()
        child = context.Process(target=in_child, args=(theirs, x, expected))
        child.start()
        assert mine.poll(60), "the child hangs"
        assert mine.recv()
        child.join(60)
        assert child.exitcode == 0


def resident_kb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def test_memory_stays_flat():
    x = np.random.default_rng(0).standard_normal((1, 2, 70, 16), dtype=np.float32)
    bias = rapt.alibi(2) + rapt.dense_bias(np.zeros((1, 1, 70, 70), np.float32))

    def call():
        attended = rapt.attend(x, x, x, "causal & window(9, 0)", bias=bias,
                               return_lse=True, return_stats=True, return_attended=True)
        rapt.attend_backward(attended.out, x, x, x, attended, "causal & window(9, 0)", bias=bias)
        rapt.attend(x.swapaxes(2, 3), x.swapaxes(2, 3), x.swapaxes(2, 3))

    for _ in range(500):
        call()
    before = resident_kb()
    for _ in range(10000):
        call()
    assert resident_kb() - before < 4096
