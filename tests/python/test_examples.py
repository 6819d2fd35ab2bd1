"""The example that needs numpy alone runs; those with PyTorch run in tests/oracles."""

from run_example import run_example


def test_numpy_attention(tmp_path):
    printed = run_example("numpy_attention.py", tmp_path)
    assert 'Plan("window(127, 0)", queries=512, keys=512)' in printed
    assert "decoding: 256 tokens, largest difference from one pass" in printed
