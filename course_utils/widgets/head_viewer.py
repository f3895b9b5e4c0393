"""The head viewer: every attention of a Transformer, layer by layer and head by head.

Plain functions (`view_of`, `look_at`, `render`) make what is shown; `HeadViewer` ties them to the controls.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import ipywidgets as widgets
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from course_utils import figures
from course_utils.probes import effective_words, entropy
from course_utils.widgets import shell
from course_utils.widgets.grid import Grid, room

KINDS = {  # whose weights, and what the rows and columns are
    "encoder": ("encoder: source to source", "source", "source"),
    "decoder": ("decoder: target to target", "target", "read"),
    "cross": ("cross: target to source", "target", "source"),
}
START = "<bos>"  # what the decoder reads first
MEAN = -1  # in place of a head: the mean over all

Layer = Mapping[str, Float[np.ndarray, "heads rows columns"]]


@dataclass(frozen=True)
class View:
    """The maps of one sentence, and what of them is looked at (all counted from 0).

    Attributes:
        maps: by layer and kind, (heads, rows, columns).
        words: of the source, of the target, and as the decoder reads them: "source", "target", "read".
        head: one head, or MEAN.
    """

    maps: tuple[Layer, ...]
    words: Mapping[str, tuple[str, ...]]
    kind: str
    layer: int = 0
    head: int = MEAN
    row: int = 0

    @property
    def rows(self) -> tuple[str, ...]:
        return self.words[KINDS[self.kind][1]]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.words[KINDS[self.kind][2]]

    @property
    def heads(self) -> Float[np.ndarray, "heads rows columns"]:
        """All heads of this kind and layer."""
        return self.maps[self.layer][self.kind]

    @property
    def name(self) -> str:
        head = "mean over heads" if self.head == MEAN else f"head {self.head + 1}"
        return f"{KINDS[self.kind][0].partition(':')[0]}, layer {self.layer + 1}, {head}"


def head_viewer(maps: Sequence[Layer], source: Sequence[str], target: Sequence[str]) -> None:
    """Show the viewer: choose an attention, a layer and a head, and read one word's row in words.

    maps: for each layer a dict of any of "encoder" (heads, source, source), "decoder" (heads, target, target)
    and "cross" (heads, target, source), numpy arrays; every layer has the same ones. Rows look, and sum to 1.
    source: the words that the encoder reads. target: the words that the decoder writes; what it reads are
    these, moved by one behind <bos>. Where the maps have one word more than is given, it is the end token.

    At most 60 words a side are drawn, and the viewer says where it was cut. Where no widget can run, a
    picture of the last layer's heads is seen instead. Raises ValueError for maps that do not fit the words
    or are no attention weights.
    """
    HeadViewer(maps, source, target).show()


# ---- what is shown


def view_of(maps: Sequence[Layer], source: Sequence[str], target: Sequence[str]) -> View:
    """The maps, checked and laid out for looking, opened at the last layer's attention to the source.

    Raises ValueError as `head_viewer` does.
    """
    maps = tuple({kind: np.asarray(heads, float) for kind, heads in layer.items()} for layer in maps)
    kinds = list(maps[0]) if maps else []
    if not kinds or not set(kinds) <= set(KINDS):
        raise ValueError(f"maps must be a list of dicts of {', '.join(KINDS)}; the first layer has {kinds}")
    words = {"source": tuple(source), "target": tuple(target)}
    for side, index in (("source", 2), ("target", 1)):
        counts = {
            heads.shape[index]
            for layer in maps
            for kind, heads in layer.items()
            if heads.ndim == 3 and KINDS[kind][index] == side
        }
        if counts == {len(words[side]) + 1}:
            words[side] += (figures.END,)
    words["read"] = (START, *words["target"])[: len(words["target"])]
    for number, layer in enumerate(maps, 1):
        _check(number, layer, kinds, words)
    opened = "cross" if "cross" in kinds else kinds[-1]
    return View(maps, words, opened, layer=len(maps) - 1)


def _check(number: int, layer: Layer, kinds: list[str], words: Mapping[str, tuple[str, ...]]) -> None:
    if set(layer) != set(kinds):
        raise ValueError(f"layer {number} has maps of {sorted(layer)}, but layer 1 has {sorted(kinds)}")
    for kind, heads in layer.items():
        wanted = tuple(len(words[side]) for side in KINDS[kind][1:])
        if heads.ndim != 3 or heads.shape[1:] != wanted or 0 in heads.shape:
            raise ValueError(
                f"layer {number}, {kind}: the map has shape {heads.shape}, but (heads, {wanted[0]}, "
                f"{wanted[1]}) is wanted for {len(words['source'])} source and {len(words['target'])} target "
                "words, each with the end token where the maps have one"
            )
        try:
            entropy(heads)
        except ValueError as error:
            raise ValueError(f"layer {number}, {kind}: {error}") from None


def weights_of(view: View) -> Float[np.ndarray, "rows columns"]:
    """The one matrix that is looked at."""
    return view.heads.mean(axis=0) if view.head == MEAN else view.heads[view.head]


def look_at(view: View, **wished) -> View:
    """The view with another kind, layer, head or row, within what there is."""
    view = replace(view, **wished)
    view = replace(view, head=min(view.head, len(view.heads) - 1))
    return replace(view, row=min(max(view.row, 0), len(view.rows) - 1))


def render(view: View) -> str:
    """The pane as HTML: the matrix with the current row framed, all heads in small, and the row in words."""
    return shell.pane(
        "One attention of a Transformer",
        _drawing(view, describe(view)),
        shell.status(summary(view)),
        shell.note(_note(view)),
    )


def summary(view: View) -> str:
    """Where the current row looks, and how widely this head looks on average."""
    weights = weights_of(view)
    row, word = weights[view.row], view.rows[view.row]
    order = [int(c) for c in np.argsort(-row, kind="stable") if row[c] >= 0.005][:4]
    looks = ", ".join(f"{shell.percent(row[c])} on “{view.columns[c]}”" for c in order)
    asks = f"“{word}” looks" if view.kind == "encoder" else f"the step that writes “{word}” looks"
    wide = effective_words(weights).mean()
    return (
        f"{view.name[0].upper()}{view.name[1:]}. Row {view.row + 1} of {len(view.rows)}: {asks}: "
        f"{looks or 'at nothing'}. A row of this matrix looks on average at {wide:.1f} of "
        f"{len(view.columns)} words."
    )


def describe(view: View) -> str:
    """The alt text: the size of the matrix, and where its first rows look most."""
    weights = weights_of(view)
    said = [
        f"“{word}” looks most at “{view.columns[int(row.argmax())]}” ({row.max():.2f})"
        for word, row in zip(view.rows, weights, strict=True)
    ][:15]
    more = len(view.rows) - len(said)
    return (
        f"Attention matrix, {view.name}: {len(view.rows)} words as rows that look, {len(view.columns)} as "
        f"columns that are looked at. {'; '.join(said)}{f'; and {more} more' if more else ''}."
    )


def _note(view: View) -> str:
    said = ["The darker a cell, the larger the weight; a ring marks the largest of each row."]
    if view.kind == "decoder":
        said.append("The columns are the words that the decoder has read, one behind those that it writes.")
    for side, count in (("rows", len(view.rows)), ("columns", len(view.columns))):
        if count > figures.MAX_WORDS:
            said.append(f"Only the first {figures.MAX_WORDS} of {count} {side} are drawn.")
    return " ".join(said)


# ---- the drawing

_WIDTH, _SMALL, _GAP = 760, 62, 14
_NUMBERED = 30  # cells at least this wide have room for their number


def _drawing(view: View, alt: str) -> str:
    most = figures.MAX_WORDS
    weights, rows, columns = weights_of(view)[:most, :most], view.rows[:most], view.columns[:most]
    cell = min(36.0, 560 / len(columns), 560 / len(rows))
    left, top = room(rows, cell)[0], room(columns, cell)[1]
    grid = Grid(rows, columns, left, top, cell)
    shapes = [shell.strip(left, top, grid.right - left, grid.bottom - top, weights)]
    for row, values in enumerate(weights):
        best = int(values.argmax())
        if values[best] > 0:
            shapes.append(_ring(grid, row, best))
        if cell >= _NUMBERED:
            for column in np.flatnonzero(values >= 0.05):
                ink = figures.readable_on(figures.shade(values[column]))
                shapes.append(grid.sign(row, int(column), f"{100 * values[column]:.0f}", size=12, fill=ink))
    if view.row < most:
        shapes.append(grid.row_frame(view.row, stroke="#000000", stroke_width=2.5))
    small, height = _heads(view, grid.bottom + 26)
    current = view.row if view.row < most else None
    return shell.svg(_WIDTH, grid.bottom + 26 + height, alt, *shapes, *grid.labels(current), *small)


def _ring(grid: Grid, row: int, column: int) -> str:
    inset = max(1.0, 0.08 * grid.cell)
    x, y = grid.left + column * grid.cell + inset, grid.top + row * grid.cell + inset
    side = grid.cell - 2 * inset
    return shell.rect(x, y, side, side, rx=side / 2, stroke=figures.GOLD, stroke_width=min(2, grid.cell / 8))


def _heads(view: View, top: float) -> tuple[list[str], float]:
    """Every head of this kind and layer in small, the current one framed; and the height of them all."""
    in_row = _WIDTH // (_SMALL + _GAP)
    shapes = []
    for head, weights in enumerate(view.heads):
        x = 4 + (head % in_row) * (_SMALL + _GAP)
        y = top + (head // in_row) * (_SMALL + 24)
        here = head == view.head
        look = {"font_weight": "bold"} if here else {}
        shapes.append(shell.text(x, y - 5, f"head {head + 1}{' ▾' * here}", size=12, **look))
        most = figures.MAX_WORDS
        shapes.append(shell.strip(x, y, _SMALL, _SMALL, weights[:most, :most]))
        if here:
            shapes.append(shell.rect(x - 2, y - 2, _SMALL + 4, _SMALL + 4, stroke="#000000", stroke_width=3))
    lines = -(-len(view.heads) // in_row)
    return shapes, lines * (_SMALL + 24)


# ---- the controls


class HeadViewer(shell.Shell):
    """The controls around a View. Every callback ends in `update`, or in a message in the pane."""

    invitation = "Run this notebook to choose the attention, the layer, the head and the word."

    def __init__(self, maps: Sequence[Layer], source: Sequence[str], target: Sequence[str]):
        super().__init__()
        view = view_of(maps, source, target)

        def buttons(description: str, width: str, options: list[tuple[str, object]], value):
            style = {**shell.LABEL, "button_width": width}
            return widgets.ToggleButtons(options=options, value=value, description=description, style=style)

        kinds = [(name, kind) for kind, (name, *_) in KINDS.items() if kind in view.maps[0]]
        layers = [(str(layer + 1), layer) for layer in range(len(view.maps))]
        self.kind = buttons("Attention:", "15em", kinds, view.kind)
        self.layer = buttons("Layer:", "4.5em", layers, view.layer)
        self.head = buttons("Head:", "4.5em", _heads_of(view), view.head)
        self.steps = shell.Stepper("Row in words:", "row", self.guarded(self.step))
        self.box = widgets.VBox([self.kind, self.layer, self.head, self.steps.row, self.message, self.pane])
        self.update(view)
        for name in ("kind", "layer", "head"):
            change = self.guarded(lambda event, name=name: self.choose(name, event["new"]))
            getattr(self, name).observe(change, "value")

    def choose(self, name: str, value) -> None:
        """Look at another kind, layer or head."""
        if value != getattr(self.view, name):
            self.update(look_at(self.view, **{name: value}))

    def step(self, row: int) -> None:
        if row != self.view.row:
            self.update(look_at(self.view, row=row))

    def update(self, view: View) -> None:
        """Bring every control in line with the view."""
        self.pane.value = render(view)
        self.view = view
        if tuple(self.head.options) != tuple(_heads_of(view)):
            self.head.options = _heads_of(view)  # which chooses the first of them
        self.head.value = view.head
        self.steps.show(view.row, len(view.rows))
        self.message.value = ""

    def still(self) -> tuple[Figure, str]:
        """The heads of the view's layer, at most six, side by side."""
        view = self.view
        shown = [replace(view, head=head) for head in range(min(len(view.heads), 6))]
        panels = [
            {"weights": weights_of(one), "source": one.columns, "target": one.rows, "title": f"head {i}"}
            for i, one in enumerate(shown, 1)
        ]
        title = f"{KINDS[view.kind][0].capitalize()}, layer {view.layer + 1}"
        figure, _ = figures.attention_matrices.build(panels, title=title)
        return figure, f"{title}. {' '.join(map(describe, shown))}"


def _heads_of(view: View) -> list[tuple[str, int]]:
    return [("mean", MEAN), *((str(head + 1), head) for head in range(len(view.heads)))]
