"""Plans that draw themselves."""

from __future__ import annotations

from typing import Any, Tuple, Type

from rapt import _core

_WIDTH_PIXELS = 320


class Plan(_core.Plan):
    __doc__ = _core.Plan.__doc__

    def __reduce__(self) -> Tuple[Type[Plan], Tuple[Any, ...]]:
        return Plan, (self.pattern, self.queries, self.keys)

    def __repr__(self) -> str:
        head = (f"Plan(\"{self.pattern}\", queries={self.queries}, keys={self.keys}): "
                f"{self.pairs} pairs, {self.whole_tiles} whole and {self.masked_tiles} masked tiles")
        return f"{head}\n{self.drawing(32)}"

    def _repr_svg_(self) -> str:
        """Rows are tiles of queries, columns tiles of keys; masked ones are lighter."""
        side = _WIDTH_PIXELS / max(self.key_tiles, self.query_tiles, 1)
        rectangles = [
            f'<rect x="{first * side:.2f}" y="{row * side:.2f}" width="{count * side:.2f}" '
            f'height="{side:.2f}" fill="{"#1f4e79" if whole else "#9dc3e6"}"/>'
            for row in range(self.query_tiles) for first, count, whole in self.visits(row)]
        width, height = self.key_tiles * side, self.query_tiles * side
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
                f'viewBox="0 0 {width:.2f} {height:.2f}">'
                f'<rect width="100%" height="100%" fill="#f3f3f3"/>{"".join(rectangles)}</svg>')
