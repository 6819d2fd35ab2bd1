"""Arrays as numpy saves them: every type, order and version, alone and in archives."""

import os
import pathlib
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("RAPT_FORMATS_TOOL", ROOT / "build/release/bin/formats_tool"))
SHAPES = [(), (1,), (7,), (0, 3), (3, 5), (4, 1, 3), (2, 3, 4, 5)]

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built")


def array(type_, shape, order):
    draw = np.random.default_rng(3)
    numbers = draw.integers(-1000, 1000, shape) if type_[0] == "i" else draw.normal(size=shape)
    return np.asarray(numbers, dtype=type_, order=order)


def ours(path, tmp_path):
    subprocess.run([TOOL, "npy", path, tmp_path / "numbers"], check=True)
    return (tmp_path / "numbers").read_bytes()


def expected(numbers):
    return np.ascontiguousarray(numbers, np.int64 if numbers.dtype.kind == "i" else np.float32).tobytes()


@pytest.mark.parametrize("type_", ["f2", "f4", "f8", "i4", "i8"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_arrays(type_, order, version, tmp_path):
    for shape in SHAPES:
        numbers = array(type_, shape, order)
        with open(tmp_path / "a.npy", "wb") as file:
            np.lib.format.write_array(file, numbers, version)
        assert ours(tmp_path / "a.npy", tmp_path) == expected(numbers)


def test_archives(tmp_path):
    arrays = {"x": array("f4", (3, 5), "C"), "ids": array("i8", (9,), "C"),
              "y": array("f8", (4, 6), "F")}
    np.savez(tmp_path / "a.npz", **arrays)
    assert ours(tmp_path / "a.npz", tmp_path) == b"".join(map(expected, arrays.values()))
    np.savez_compressed(tmp_path / "b.npz", **arrays)
    with pytest.raises(subprocess.CalledProcessError):
        ours(tmp_path / "b.npz", tmp_path)
