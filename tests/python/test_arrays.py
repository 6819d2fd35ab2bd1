"""What counts as an array, and what comes back."""

import array

import ml_dtypes
import numpy as np
import pytest

import rapt


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


class OnlyDlpack:
    """An array of a library that rapt has never heard of."""

    def __init__(self, numbers):
        self.numbers = numbers

    def __dlpack__(self, **how):
        return self.numbers.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.numbers.__dlpack_device__()


def test_any_buffer_is_an_array():
    x = numbers(1, 2, 5, 4)
    view = memoryview(array.array("f", x.ravel().tolist())).cast("B").cast("f", x.shape)
    out = rapt.attend(view, view, view)
    assert isinstance(out, memoryview)
    assert np.array_equal(np.asarray(out), rapt.attend(x, x, x))


def test_any_dlpack_object_is_an_array():
    x = numbers(1, 2, 5, 4)
    out = rapt.attend(*[OnlyDlpack(x)] * 3)
    assert np.array_equal(np.from_dlpack(out), rapt.attend(x, x, x))


def test_read_only_arrays_are_fine():
    x = numbers(1, 2, 5, 4)
    x.flags.writeable = False
    assert rapt.attend(x, x, x).flags.writeable


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_short_floats_keep_their_type(dtype):
    x = numbers(1, 2, 5, 4).astype(dtype)
    attended = rapt.attend(x, x, x, return_attended=True)
    assert attended.out.dtype == dtype and attended.lse.dtype == np.float32
    assert rapt.attend_backward(attended.out, x, x, x, attended).dq.dtype == dtype


STRIDES = {
    "tokens before heads": lambda x: x.swapaxes(1, 2).copy().swapaxes(1, 2),
    "every second token": lambda x: np.repeat(x, 2, axis=2)[:, :, ::2],
    "backwards": lambda x: x[:, :, ::-1].copy()[:, :, ::-1],
    "last axis strided": lambda x: np.repeat(x, 2, axis=3)[..., ::2],
    "last axis backwards": lambda x: x[..., ::-1].copy()[..., ::-1],
    "channels first": lambda x: x.transpose(3, 2, 1, 0).copy().transpose(3, 2, 1, 0),
    "at an odd address": lambda x: odd_address(x),
}


def odd_address(x):
    buffer = np.zeros(x.nbytes + 1, np.uint8)
    odd = buffer[1:].view(np.float32).reshape(x.shape)
    odd[...] = x
    return odd


@pytest.mark.parametrize("name", STRIDES)
def test_strides_change_nothing(name):
    x = numbers(2, 3, 9, 8)
    moved = STRIDES[name](x)
    assert np.array_equal(moved, x)
    assert np.array_equal(rapt.attend(moved, moved, moved, "causal"), rapt.attend(x, x, x, "causal"))


def test_a_repeated_head_is_stored_once():
    x = numbers(2, 1, 9, 8)
    wide = np.broadcast_to(x, (2, 4, 9, 8))
    assert np.array_equal(rapt.attend(wide, wide, wide), rapt.attend(*[np.ascontiguousarray(wide)] * 3))


def test_sizes_of_zero():
    assert rapt.attend(*[np.zeros((0, 2, 5, 4), np.float32)] * 3).shape == (0, 2, 5, 4)
    q, k = np.zeros((1, 2, 5, 4), np.float32), np.zeros((1, 2, 0, 4), np.float32)
    out, lse = rapt.attend(q, k, k, return_lse=True)
    assert not out.any() and np.isneginf(lse).all()


x = numbers(1, 2, 5, 4)
MISTAKES = [
    (TypeError, "q has numbers of float64", lambda: rapt.attend(x.astype(float), x, x)),
    (TypeError, "k has numbers of int32", lambda: rapt.attend(x, x.astype(np.int32), x)),
    (TypeError, "v is a list", lambda: rapt.attend(x, x, [1.0])),
    (TypeError, "expected an array", lambda: rapt.attend(None, x, x)),
    (TypeError, "another type", lambda: rapt.attend(x.astype(">f4"), x, x)),
    (ValueError, "q has 3 axes, expected 4", lambda: rapt.attend(x[0], x, x)),
    (ValueError, "at most 8", lambda: rapt.attend(x.reshape((1,) * 5 + x.shape), x, x)),
    (ValueError, "keys but v", lambda: rapt.attend(x, x, x[:, :, :3])),
    (ValueError, "layout", lambda: rapt.attend(x, x, x, layout="lbhd")),
    (ValueError, "column", lambda: rapt.attend(x, x, x, "causal &")),
    (TypeError, "pattern is a int", lambda: rapt.attend(x, x, x, 7)),
    (ValueError, "scale", lambda: rapt.attend(x, x, x, scale="large")),
    (TypeError, "scale", lambda: rapt.attend(x, x, x, scale=[1])),
    (TypeError, "softcap", lambda: rapt.attend(x, x, x, softcap="high")),
    (ValueError, "slopes", lambda: rapt.attend(x, x, x, bias=rapt.alibi([0.5]))),
    (ValueError, "both sides", lambda: rapt.alibi(2) + rapt.alibi(2)),
    (ValueError, "axes, expected at most 4", lambda: rapt.attend(x, x, x, bias=np.zeros((1,) * 5))),
    (TypeError, "sinks", lambda: rapt.attend(x, x, x, sinks="ab")),
    (ValueError, "dropout", lambda: rapt.attend(x, x, x, dropout=1.5, seed=1)),
    (ValueError, "isa", lambda: rapt.attend(x, x, x, context=rapt.Context(1, "isa"))),
    (ValueError, "softcap=None", lambda: rapt.attend(x, x, x, softcap=0.0)),
    (ValueError, "rows", lambda: rapt.attend_backward(x, x, x, x, rapt.Attended(x, x, rapt.Rows(x, x)))),
    (TypeError, "attended.rows is .*, expected a rapt.Rows",
     lambda: rapt.attend_backward(x, x, x, x, rapt.Attended(x, x, (x, x)))),
    (TypeError, "attended is .*, expected the rapt.Attended", lambda: rapt.attend_backward(x, x, x, x, (x, (x, x)))),
    (ValueError, "axes, expected 2", lambda: rapt.mask(np.ones(3, bool))),
    (TypeError, "expected bool", lambda: rapt.mask(np.ones((3, 3)))),
]


@pytest.mark.parametrize("error, message, call", MISTAKES, ids=[m[1] for m in MISTAKES])
def test_mistakes_are_named(error, message, call):
    with pytest.raises(error, match=message):
        call()
