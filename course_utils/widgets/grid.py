"""A table of words against words, drawn as SVG: who looks, one a row, and at whom, one a column."""

from collections.abc import Sequence
from dataclasses import dataclass

from course_utils.widgets import shell

_LETTERS = 14  # of a label; the rest is cut
_LETTER, _RISE = (
    0.6,
    0.87,
)  # the width of a letter in font sizes; how much of a slanted label's length is height


@dataclass(frozen=True)
class Grid:
    """Where the cells of a table lie. Its labels stand to the left and, slanted, above.

    Attributes:
        rows, columns: the labels.
        left, top: where the first cell begins; `room` says how much its labels need.
        cell: the width and height of a cell.
    """

    rows: Sequence[str]
    columns: Sequence[str]
    left: float
    top: float
    cell: float

    @property
    def right(self) -> float:
        return self.left + self.cell * len(self.columns)

    @property
    def bottom(self) -> float:
        return self.top + self.cell * len(self.rows)

    def square(self, row: int, column: int, **look) -> str:
        """One cell, filled."""
        return shell.rect(
            self.left + column * self.cell, self.top + row * self.cell, self.cell, self.cell, **look
        )

    def sign(self, row: int, column: int, words: str, **look) -> str:
        """A few letters in the middle of a cell."""
        size = look.pop("size", self.cell * 0.45)
        x, y = self.left + (column + 0.5) * self.cell, self.top + (row + 0.5) * self.cell + 0.35 * size
        return shell.text(x, y, words, size=size, text_anchor="middle", **look)

    def row_frame(self, row: int, **look) -> str:
        """A frame around one row."""
        return shell.rect(self.left, self.top + row * self.cell, self.right - self.left, self.cell, **look)

    def labels(self, current: int | None = None) -> list[str]:
        """The labels, that of the current row in bold with a pointer."""
        size = font_size(self.cell)
        shapes = []
        for row, label in enumerate(self.rows):
            y = self.top + (row + 0.5) * self.cell + 0.35 * size
            here = row == current
            look = (
                {"font_weight": "bold"} if here else {"fill": shell.GREY if current is not None else "#000"}
            )
            words = f"{_cut(label)} ▸" if here else _cut(label)
            shapes.append(shell.text(self.left - 6, y, words, size=size, text_anchor="end", **look))
        for column, label in enumerate(self.columns):
            x, y = self.left + (column + 0.6) * self.cell, self.top - 5
            turn = f"rotate(-60 {x:.1f} {y:.1f})"
            shapes.append(shell.text(x, y, _cut(label), size=size, transform=turn))
        return shapes


def font_size(cell: float) -> float:
    """Of labels beside cells of this size."""
    return min(13.0, 0.95 * cell)


def room(labels: Sequence[str], cell: float) -> tuple[float, float]:
    """How much the longest of these labels needs: (width before the rows, height above the columns)."""
    longest = max(len(_cut(label)) for label in labels) * _LETTER * font_size(cell)
    return longest + 24, longest * _RISE + 14


def _cut(label: str) -> str:
    return label if len(label) <= _LETTERS else label[: _LETTERS - 1] + "…"
