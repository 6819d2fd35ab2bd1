"""What every head of a model does on a text, and what narrower attention would cost."""

from __future__ import annotations

import html
import json
import os
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Union

from rapt import _core, _given
from rapt._files import write_whole
from rapt.model import Model, load

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


def heads(model: Union[Model, str, os.PathLike[str]], text: Optional[str] = None, *,
          ids: Optional[Sequence[int]] = None, target: Optional[str] = None,
          target_ids: Optional[Sequence[int]] = None, limit: Optional[int] = None, trials: bool = True,
          maps: bool = True, context: Optional[_core.Context] = None) -> HeadReport:
    """Runs a model on a text and reports on every head.

    model is a rapt.Model, or anything that rapt.load takes. ids replace a text. target is what the decoder of an
    encoder-decoder reads. limit is how many tokens are read, None for all; trials runs the model again under
    narrower patterns; maps keeps attention over the text, which the page shows. In a notebook the report
    displays itself.

    >>> report = rapt.heads("minilm", "a cat sleeps on the mat")    # doctest: +SKIP
    >>> pandas.DataFrame(report.heads).sort_values("reach90")       # doctest: +SKIP
    """
    if text is None and ids is None:
        raise ValueError("heads: neither text nor ids are given, expected one of them: what the model is to read")
    trials, maps = _given.flag("heads: trials", trials), _given.flag("heads: maps", maps)
    if isinstance(model, Model):
        name = model.family
    else:
        name = os.fsdecode(model)
        model = load(model)
    given = _core.head_report_text(_text("heads: text", text), _text("heads: target", target),
                                   _ids("heads: ids", ids, model.vocab_size),
                                   _ids("heads: target_ids", target_ids, model.vocab_size),
                                   None if limit is None else _given.whole("heads: limit", limit))
    core = _core.heads(model._core, given, 256 if maps else None, trials, _given.context("heads", context))
    core.model = name
    return HeadReport(core)


def _text(where: str, value: Optional[str]) -> str:
    return "" if value is None else _given.text(where, value)


def _ids(where: str, value: Optional[Sequence[int]], vocab_size: int) -> List[int]:
    return [] if value is None else _given.ids(where, value, vocab_size)


def _columns(rows: List[Dict[str, Any]]) -> Dict[str, List[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


class HeadReport:
    """The result of rapt.heads.

    heads and trials are tables: dicts of columns of equal length, as pandas.DataFrame takes them. data is
    everything that `rapt heads --json` prints.
    """

    def __init__(self, core: Any) -> None:
        self._core = core
        self.data = json.loads(core.json())
        self.heads = _columns(self.data["heads"])
        self.layers = _columns(self.data["layers"])
        self.trials = _columns(self.data["trials"])
        self.advice = self.data["advice"]
        self.warnings = self.data["warnings"]
        self.tokens = self.data["texts"]
        self.loss = self.data["loss"]

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("HeadReport: a report cannot be copied or pickled; its numbers are in .data, which can, and "
                        "save(path) writes the page")

    def map(self, layer: int, head: int) -> NDArray[float32]:
        """[side, side]: what the queries of a tile give to the keys of a tile, on average. Tiles are
        map_tile tokens, single ones up to 256."""
        rows: NDArray[float32] = self._core.map(layer, head)
        return rows

    @property
    def map_tile(self) -> int:
        return int(self._core.map_tile)

    def html(self) -> str:
        """The page of `rapt heads --html`."""
        return str(self._core.html())

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the page."""
        write_whole(path, self.html())

    def _repr_html_(self) -> str:
        return (f'<iframe srcdoc="{html.escape(self.html())}" sandbox="allow-scripts" '
                'style="width:100%;height:960px;border:0"></iframe>')

    def __repr__(self) -> str:
        lines = [f"<rapt.HeadReport of {self.data['model']}: {len(self.data['layers'])} layers of "
                 f"{self.data['heads_per_layer']} heads on {self.data['tokens']} tokens>"]
        return "\n".join(lines + ["- " + line for line in self.advice])
