"""A health report of a model on a text: what every head does, and what narrower attention would cost."""

from __future__ import annotations

import html
import json
import os

from rapt import _core, _given
from rapt._files import write_whole
from rapt.model import Model, load


def inspect(model, text=None, *, ids=None, target=None, target_ids=None, limit=0, trials=True, maps=True,
            context=None):
    """Runs a model on a text and reports on every head.

    model is what rapt.load gives, or what it takes. Instead of a text there may be ids. target is what
    the decoder of an encoder-decoder reads. limit is how many tokens are read, the first ones; trials
    runs the model again under narrower patterns; maps keeps attention over the text, which the page
    shows. In a notebook the report shows itself.

    >>> report = rapt.inspect("minilm", "a cat sleeps on the mat")    # doctest: +SKIP
    >>> pandas.DataFrame(report.heads).sort_values("reach90")         # doctest: +SKIP
    """
    if text is None and ids is None:
        raise ValueError("inspect: neither text nor ids are given, expected one of them: what the model is to read")
    trials, maps = _given.flag("inspect: trials", trials), _given.flag("inspect: maps", maps)
    if isinstance(model, Model):
        called = model.family
    else:
        path, model = model, load(model)
        called = os.fsdecode(path)
    texts = [_text(f"inspect: {name}", value) for name, value in (("text", text), ("target", target))]
    lists = [_ids(f"inspect: {name}", value, model.vocabulary)
             for name, value in (("ids", ids), ("target_ids", target_ids))]
    given = _core.health_text(*texts, *lists, _given.whole("inspect: limit", limit))
    core = _core.examine(model._core, given, 256 if maps else 0, trials, _given.context("inspect", context))
    core.model = called
    return Health(core)


def _text(where, value):
    return "" if value is None else _given.text(where, value)


def _ids(where, value, vocabulary):
    return [] if value is None else _given.ids(where, value, vocabulary)


def _columns(rows):
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


class Health:
    """What inspect found.

    heads and trials are tables: dicts of columns of one length, which pandas.DataFrame takes. data is
    everything, as `rapt inspect --json` prints it.
    """

    def __init__(self, core):
        self._core = core
        self.data = json.loads(core.json())
        self.heads = _columns(self.data["heads"])
        self.layers = _columns(self.data["layers"])
        self.trials = _columns(self.data["trials"])
        self.advice = self.data["advice"]
        self.notices = self.data["notices"]
        self.tokens = self.data["texts"]
        self.loss = self.data["loss"]

    def __reduce_ex__(self, protocol):
        raise TypeError("Health: a report cannot be copied or pickled; its numbers are in .data, which can, and "
                        "save(path) writes the page")

    def map(self, layer, head):
        """[side, side]: what the queries of a tile give to the keys of a tile, on average. Tiles are
        map_tile tokens, single ones up to 256."""
        return self._core.map(layer, head)

    map_tile = property(lambda self: self._core.map_tile)

    def html(self):
        """The page of `rapt inspect --html`."""
        return self._core.html()

    def save(self, path):
        """Writes the page."""
        write_whole(path, self.html())

    def _repr_html_(self):
        return (f'<iframe srcdoc="{html.escape(self.html())}" sandbox="allow-scripts" style="width:100%;height:960px;border:0">'
                "</iframe>")

    def __repr__(self):
        lines = [f"<rapt.Health of {self.data['model']}: {len(self.data['layers'])} layers of "
                 f"{self.data['heads_each']} heads on {self.data['tokens']} tokens>"]
        return "\n".join(lines + ["- " + line for line in self.advice])
