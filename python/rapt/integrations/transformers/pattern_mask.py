"""A mask that is a tensor to the model and a pattern to rapt."""

from __future__ import annotations

from typing import Any, List

import torch

# What a mask answers without its values; `to` and `contiguous` return the mask itself if there is
# nothing to change.
_TENSOR = torch.Tensor
_WITHOUT_NUMBERS = {
    _TENSOR.size, _TENSOR.dim, _TENSOR.ndimension, _TENSOR.numel, _TENSOR.stride, _TENSOR.__len__,
    _TENSOR.is_floating_point, _TENSOR.is_complex, _TENSOR.is_contiguous, _TENSOR.element_size,
    _TENSOR.get_device, _TENSOR.to, _TENSOR.contiguous, _TENSOR.type_as, _TENSOR.float,
    torch.is_floating_point, torch.numel,
    *(getattr(_TENSOR, name).__get__ for name in (
        "shape", "dtype", "device", "ndim", "layout", "requires_grad", "is_leaf", "grad_fn", "grad",
        "is_cuda", "is_cpu", "is_meta", "is_sparse", "is_quantized", "is_mkldnn", "is_mps",
        "is_xpu", "is_nested", "_version", "itemsize", "nbytes"))}
# A number that is an address.
_ADDRESSES = {_TENSOR.data_ptr}
_PLAIN_RESULTS = (bool, int, float, complex, str, torch.dtype, torch.device, torch.layout)


class PatternMask(torch.Tensor):
    """Transformers' float mask [batch, 1, queries, slots] (0 = seen, the smallest number of the type
    = hidden), computed when the model first uses its values. Every operation returns an ordinary tensor,
    so a mask that a model has sliced, added to or expanded has no pattern any more.

    patterns: one for each batch item, or one for all; the first `keys` slots of the cache hold tokens.
    padded: some rows may see no key.
    """

    _dense: Any

    @staticmethod
    def __new__(cls, patterns, keys, shape, dtype, numbers, padded=False):
        mask = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device="cpu")
        mask.patterns, mask.keys, mask.padded = patterns, keys, padded
        mask._numbers, mask._dense, mask._exposed = numbers, None, False
        return mask

    def __init__(self, *_, **__):
        pass

    def dense(self) -> torch.Tensor:
        """The values, computed once: later views share them, as views of any tensor do. An ordinary
        tensor even in inference mode, whose tensors do not count writes."""
        if self._dense is None:
            with (torch._C.DisableTorchFunctionSubclass(), torch.inference_mode(False),
                  torch.no_grad()):
                numbers = self._numbers().contiguous()
                self._dense = numbers.clone() if numbers.is_inference() else numbers
                self._dense_version = self._dense._version
        return self._dense

    @property
    def intact(self) -> bool:
        """Whether the patterns still describe the values: nothing has written to them or can do so
        unnoticed."""
        return self._dense is None or (not self._exposed
                                       and self._dense._version == self._dense_version)

    def __repr__(self):
        return (f"PatternMask({', '.join(map(str, self.patterns))}; {list(self.shape)}, "
                f"{self.dtype})")

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in _WITHOUT_NUMBERS:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if func is _TENSOR.detach or (func is _TENSOR.__getitem__ and _is_whole(*args)):
            return args[0]
        with torch._C.DisableTorchFunctionSubclass():
            return _with_numbers(func, args, kwargs)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _with_numbers(func, args, kwargs or {})


def _with_numbers(func, args, kwargs):
    """The call on the values. A mask whose values it may write to, or whose memory something refers to
    afterwards (a view, an array, a storage, an address), is exposed: later writes may go unnoticed."""
    masks: List[PatternMask] = []
    result = func(*_as_numbers(args, masks), **_as_numbers(kwargs, masks))
    schema = getattr(func, "_schema", None)
    writes = func in _ADDRESSES or schema is not None and schema.is_mutable
    for mask in masks:
        if writes or _holds(result, mask._dense):
            mask._exposed = True
    return result


def _holds(result, numbers) -> bool:
    """Whether a result may give access to the memory of the values. A call that returns None was made
    for its effect."""
    if isinstance(result, (list, tuple)):
        return any(_holds(x, numbers) for x in result)
    if isinstance(result, _PLAIN_RESULTS):
        return False
    if type(result) is not torch.Tensor or result.layout is not torch.strided:
        return True
    return torch.compiler.is_compiling() or torch._C._is_alias_of(result, numbers)


def _as_numbers(given, masks):
    """What is given, with every mask replaced by its values; the masks are appended to `masks`."""
    if isinstance(given, PatternMask):
        masks.append(given)
        return given.dense()
    if isinstance(given, dict):
        return {name: _as_numbers(value, masks) for name, value in given.items()}
    if type(given) in (list, tuple):
        return type(given)(_as_numbers(value, masks) for value in given)
    return given


def _is_whole(mask, index):
    """Whether an index such as mask[:, :, :, :keys] selects everything."""
    index = index if isinstance(index, tuple) else (index,)
    with torch._C.DisableTorchFunctionSubclass():
        sizes = mask.shape
    if len(index) > len(sizes):
        return False
    return all(type(part) is slice and all(type(x) in (int, type(None)) for x in
                                           (part.start, part.stop, part.step))
               and part.indices(size) == (0, size, 1) for part, size in zip(index, sizes))
