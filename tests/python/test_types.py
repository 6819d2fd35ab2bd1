"""Types of the package: mypy --strict finds nothing in it, and in a program that uses it only its mistakes."""

import inspect
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import rapt
from rapt.compat import flash_attn

CONFIG = pathlib.Path(__file__).resolve().parents[2] / "pyproject.toml"


@pytest.fixture(scope="module")
def mypy(tmp_path_factory, request):
    """mypy over a copy of the package, with the stubs of the compiled module."""
    place = tmp_path_factory.mktemp("types")
    shutil.copytree(pathlib.Path(rapt.__file__).parent, place / "rapt",
                    ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    cache = request.config.cache.mkdir("mypy") if hasattr(request.config, "cache") else place / "cache"

    def run(*arguments):
        environment = {**os.environ, "MYPYPATH": str(place)}
        return subprocess.run([sys.executable, "-m", "mypy", "--strict", "--config-file", CONFIG, "--cache-dir", cache,
                               "--no-error-summary", "--hide-error-context", *arguments], env=environment, cwd=place,
                              capture_output=True, text=True, timeout=600)

    return run


def functions_of(name, value):
    """A function, or the public methods that a class defines in Python."""
    if inspect.isfunction(value) and value.__module__.startswith("rapt"):
        yield name, value
    if inspect.isclass(value):
        for method, function in vars(value).items():
            function = function.fget if isinstance(function, property) else function
            if inspect.isfunction(function) and (method == "__init__" or not method.startswith("_")):
                yield f"{name}.{method}", function


def test_every_public_function_is_annotated():
    modules = {"rapt": rapt, "rapt.positions": rapt.positions, "rapt.flex": rapt.flex, "rapt.lab": rapt.lab,
               "rapt.compat.flash_attn": flash_attn}
    for place, module in modules.items():
        public = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
        for name, function in (found for each in public for found in functions_of(each, getattr(module, each))):
            expected = {*inspect.signature(function).parameters, "return"} - {"self"}
            assert expected <= function.__annotations__.keys(), f"{place}.{name}"


def test_the_package_passes_mypy(mypy):
    done = mypy("-p", "rapt")
    assert done.returncode == 0, done.stdout + done.stderr


PROGRAM = """
import numpy as np
import rapt

x = np.ones((1, 2, 5, 4), np.float32)
options = rapt.Attention(rapt.causal() & "keys(3)", scale="log_n", softcap=30.0, bias=rapt.alibi(2), sinks=[0.0, 1.0])
attended = rapt.attend(x, x, x, options, return_attended=True)
reveal_type(attended)  # note: rapt.attention.results.Attended
reveal_type(attended.rows)  # note: rapt.attention.results.Rows
reveal_type(rapt.attend_backward(x, x, x, x, attended, options, dlse=attended.lse))  # note: Gradients
reveal_type(rapt.attend_bigbird(x, x, x, block=2, random=[[1]], return_attended=True))  # note: Attended
long = rapt.attend_longformer(x, x, x, window=2, classes=[1] * 5, return_attended=True)
reveal_type(rapt.attend_longformer_backward(x, x, x, x, None, None, None, long))  # note: LongformerGradients
out, lse = rapt.attend(x, x, x, "causal", return_lse=True, layout="blhd")
view = memoryview(b"")
rapt.attend(view, view, view, rapt.Plan("causal", 5), bias=x)
cache = rapt.KvCache(kv_heads=2, dim=4, window=16, lsh=rapt.lsh(4, 1, [2]))
reveal_type(cache.add())  # note: int
cache.append(0, x, x)
reveal_type(cache.explain((1, 2, 1, 4), [0], options))  # note: str
reveal_type(rapt.lsh(4) & rapt.keys(3))  # note: Pattern
mask = rapt.create_block_mask(lambda b, h, q, k: q >= k, None, None, 5, 5)
rapt.flex_attention(x, x, x, rapt.flex.softcap(5.0).then(rapt.flex.alibi(2)), mask)
rapt.scaled_dot_product_attention(x, x, x, np.ones((5, 5), bool))
rope = rapt.positions.Rope(4, scaling=rapt.positions.LinearRope(2.0))
rope.apply(x, positions=[0, 1, 2, 3, 4])
rapt.attend("q", x, x)  # error
rapt.attend(x, x, x, layout="lbhd")  # error
rapt.attend(x, x, x, softcap="high")  # error
rapt.attend(x, x, x, 7)  # error
rapt.attend_backward(x, x, x, x, (x, x), "causal")  # error
rapt.Attention(capped=3.0)  # error
options.softcap = 5.0  # error
rapt.KvCache(2, "4")  # error
rapt.positions.Rope("8")  # error
rapt.longformer(x, x, x)  # error
"""


def test_a_program_has_the_types_it_should(mypy, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    found = {}
    for line in mypy(path).stdout.splitlines():
        where, number, kind, words = line.split(":", 3)
        if where.endswith("program.py") and (kind.strip() == "error" or "Revealed type" in words):
            found[int(number)] = (kind.strip(), words)
    for number, line in enumerate(PROGRAM.splitlines(), 1):
        _, marked, expected = line.partition("  # ")
        kind, words = found.pop(number, ("", ""))
        assert kind == expected.partition(":")[0], (line, words)
        assert expected.partition(": ")[2] in words, (line, words)
    assert not found
