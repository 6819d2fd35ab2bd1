"""What attention does, measured and drawn.

>>> from rapt import lab
>>> list(lab.experiments())
['scale', 'gradients', 'length', 'sparsity', 'positions']
>>> report = lab.report("positions")
>>> report
<rapt.lab.Report: positions, 7 figures>

In a notebook a report shows itself.
"""

from __future__ import annotations

import html
import json
import os
import pathlib
from typing import Any, Callable, Dict, List, Optional, Union

from rapt import _core
from rapt._files import write_whole


def _built() -> None:
    if not hasattr(_core, "lab_report"):
        raise RuntimeError("lab: rapt was built without models; install what scripts/setup names and "
                           "build it again")


def experiments() -> Dict[str, str]:
    """Maps names to the questions that they answer."""
    _built()
    return _core.lab_experiments()


def report(*names: str, seed: int = 1, progress: Optional[Callable[[float, str], Any]] = None,
           context: Optional[_core.Context] = None) -> Report:
    """Runs the experiments of these names, or all of them, which takes about two minutes.

    progress(done, what) is called along the way, with `done` from 0 to 1; an exception it raises stops the
    work.
    """
    _built()
    return Report(*_core.lab_report(list(names), seed, progress, context or _core.Context()))


class Report:
    """A page and its numbers.

    page is HTML that needs no other file and no network; data is the contents of report.json: sections,
    their figures, and the tables that the figures are drawn from.
    """

    def __init__(self, page: str, data: str) -> None:
        self.page = page
        self.data: Dict[str, Any] = json.loads(data)

    def table(self, section: str, figure: str, table: str) -> List[Dict[str, Any]]:
        """The rows of one table, as dictionaries."""
        for part in self.data["sections"]:
            for drawn in part["figures"]:
                if (part["name"], drawn["name"]) == (section, figure) and table in drawn["data"]:
                    rows: List[Dict[str, Any]] = drawn["data"][table]
                    return rows
        raise KeyError(f"the report has no table {section!r}, {figure!r}, {table!r}")

    def save(self, folder: Union[str, os.PathLike[str]] = ".") -> pathlib.Path:
        """Writes report.html and report.json into a folder, and returns the page's path."""
        place = pathlib.Path(os.fspath(folder))
        place.mkdir(parents=True, exist_ok=True)
        write_whole(place / "report.json", json.dumps(self.data, indent=1, ensure_ascii=False))
        page = place / "report.html"
        write_whole(page, self.page)
        return page

    def _repr_html_(self) -> str:
        # A frame keeps the styles and scripts of the notebook and of the page apart.
        return (f'<iframe srcdoc="{html.escape(self.page)}" sandbox="allow-scripts allow-downloads" '
                'style="width:100%;height:48rem;border:0" title="What attention does"></iframe>')

    def __repr__(self) -> str:
        sections = self.data["sections"]
        figures = sum(len(section["figures"]) for section in sections)
        return f"<rapt.lab.Report: {', '.join(s['name'] for s in sections)}, {figures} figures>"
