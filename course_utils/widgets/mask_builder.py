"""The mask builder: choose who may look at whom, and see the mask, its code and the models that have it.

Plain functions (`mask_of`, `code_of`, `render`) make what is shown; `MaskBuilder` ties them to the controls.
"""

from dataclasses import dataclass, replace
from typing import Literal

import ipywidgets as widgets
import numpy as np
import torch
from jaxtyping import Bool
from matplotlib.figure import Figure

from course_utils import figures
from course_utils.models.masks import causal_mask, padding_mask, prefix_mask, window_mask
from course_utils.widgets import shell
from course_utils.widgets.grid import Grid, room

Pattern = Literal["all", "causal", "prefix", "window"]
PATTERNS: dict[str, Pattern] = {
    "everything": "all",
    "the past (causal)": "causal",
    "a prefix and the past": "prefix",
    "a window of the past": "window",
}
WORDS = ["my", "small", "cat", "sleeps", "under", "the", "old", "table", "every", "afternoon"]
PAD = "<pad>"
MAX_PADDING = 6


@dataclass(frozen=True)
class Settings:
    """What the reader can choose.

    Attributes:
        pattern: what a token may look at, padding aside.
        prefix: how many positions everyone sees, for "prefix".
        window: how many of the last positions a token sees, its own included, for "window".
        words: real tokens.
        padding: padding tokens.
        side: where the padding stands.
        hidden: whether the padding mask is used.
        row: the token whose row is told in words.
    """

    pattern: Pattern = "all"
    prefix: int = 3
    window: int = 3
    words: int = 6
    padding: int = 2
    side: Literal["end", "start"] = "end"
    hidden: bool = True
    row: int = 0

    @property
    def size(self) -> int:
        return self.words + self.padding

    @property
    def tokens(self) -> list[str]:
        words, pads = WORDS[: self.words], [PAD] * self.padding
        return words + pads if self.side == "end" else pads + words


def mask_builder() -> None:
    """Show the builder: choose pattern, sizes and padding; see the mask and the line of code that makes it.

    Where no widget can run, a picture of four masks is seen instead.
    """
    MaskBuilder().show()


# ---- what is shown


def real(settings: Settings) -> Bool[np.ndarray, " size"]:
    """True for each token that is a word."""
    mask = padding_mask(torch.tensor([settings.words]), settings.size)[0]
    return (mask if settings.side == "end" else mask.flip(-1)).numpy()


def mask_of(settings: Settings) -> Bool[np.ndarray, "size size"]:
    """The composed mask of the one sentence, (target, source): True = may look."""
    patterns = {
        "all": lambda: torch.ones(settings.size, settings.size, dtype=torch.bool),
        "causal": lambda: causal_mask(settings.size),
        "prefix": lambda: prefix_mask(settings.size, settings.prefix),
        "window": lambda: window_mask(settings.size, settings.window),
    }
    mask = patterns[settings.pattern]().numpy()
    return mask & real(settings) if settings.hidden else mask


def code_of(settings: Settings) -> str:
    """The line that makes this mask with course_utils.models.masks; it broadcasts to (batch, size, size)."""
    size = settings.size
    parts = {
        "all": [],
        "causal": [f"causal_mask({size})"],
        "prefix": [f"prefix_mask({size}, {settings.prefix})"],
        "window": [f"window_mask({size}, {settings.window})"],
    }[settings.pattern]
    if settings.hidden:
        flip = "" if settings.side == "end" else ".flip(-1)"
        parts.append(f"padding_mask(torch.tensor([{settings.words}]), {size}){flip}[:, None]")
    return f"mask = {' & '.join(parts) or 'None'}"


def render(settings: Settings) -> str:
    """The pane as HTML: the mask as a table, counts, the models that have it, and its line of code."""
    mask = mask_of(settings)
    return shell.pane(
        "Who may look at whom",
        _drawing(settings, mask, describe(settings, mask)),
        shell.status(summary(settings, mask)),
        f'<p style="margin:6px 0">{models(settings)}</p>',
        f'<pre style="margin:6px 0;padding:6px 8px;background:#f2f2f2;color:#000;white-space:pre-wrap">'
        f"{code_of(settings)}</pre>",
        shell.note(_note(settings)),
    )


def summary(settings: Settings, mask: np.ndarray) -> str:
    """One row in words, the count of pairs, and what is wrong with the mask."""
    tokens, row = settings.tokens, settings.row
    seen = [tokens[column] for column in np.flatnonzero(mask[row])]
    sees = f"sees {len(seen)} of {len(tokens)}: {', '.join(seen)}" if seen else "sees nothing"
    said = [
        f"Row {row + 1}, “{tokens[row]}”, {sees}.",
        f"{mask.sum()} of {mask.size} pairs are allowed ({shell.percent(mask.mean())}).",
    ]
    empty = np.flatnonzero(~mask.any(axis=1))
    if len(empty):
        rows = ", ".join(str(row + 1) for row in empty)
        said.append(
            f"Empty: row{'s' * (len(empty) > 1)} {rows}. A softmax over nothing but −∞ is NaN; "
            "masked_softmax gives such a row zeros."
        )
    leaks = leaks_of(settings, mask)
    if leaks.any():
        said.append(
            f"Leak: in {leaks.sum()} of these pairs a word looks at padding, so that its output changes with "
            "the length to which the sentence is padded."
        )
    return " ".join(said)


def leaks_of(settings: Settings, mask: np.ndarray) -> Bool[np.ndarray, "size size"]:
    """The pairs in which a word looks at padding."""
    words = real(settings)
    return mask & words[:, None] & ~words


def models(settings: Settings) -> str:
    """Which models have this pattern, padding aside. A pattern counts as what it is, not by its name."""
    pattern = mask_of(replace(settings, hidden=False))
    if pattern.all():
        return (
            "BERT looks like this, and so do the encoders of T5 and of the Transformer: each token sees both "
            "sides."
        )
    if np.array_equal(pattern, causal_mask(settings.size).numpy()):
        return (
            "GPT looks like this, and so does the self-attention in the decoders of T5 and of the "
            "Transformer: no token sees the future, so that all of them can be trained to predict their next "
            "one at once."
        )
    if settings.pattern == "prefix":
        return (
            "A prefix language model looks like this: the prefix is read to both sides as by BERT, and the "
            "rest is written word by word as by GPT."
        )
    if settings.window == 1:
        return "No model looks like this: each token sees itself alone, and attention has nothing to choose."
    return (
        "Models for long texts look like this, such as Mistral 7B with its window of 4096: a row has at most "
        f"{settings.window} places whatever the length, and what lies further back arrives by way of further "
        "layers."
    )


def describe(settings: Settings, mask: np.ndarray) -> str:
    """The alt text: the size of the table, and what each row sees."""
    rows = "; ".join(
        f"“{token}” sees {_ranges(np.flatnonzero(row))}"
        for token, row in zip(settings.tokens, mask, strict=True)
    )
    return (
        f"Table of {settings.size} tokens as rows by the same tokens as columns; a filled cell says that the "
        f"row may look at the column. By position from 1: {rows}."
    )


def _ranges(columns: np.ndarray) -> str:
    """Positions counted from 1, with runs written as 2–5."""
    runs = np.split(columns + 1, np.flatnonzero(np.diff(columns) > 1) + 1)
    return (
        ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs if len(run))
        or "nothing"
    )


def _note(settings: Settings) -> str:
    said = ["Rows look, columns are looked at. A filled cell with a dot is True: may look."]
    if settings.padding:
        said.append("A small cross is a padding column that the padding mask closes.")
    return " ".join(said)


# ---- the drawing

_WIDTH, _TABLE, _BELOW = 760, 430, 8


def _drawing(settings: Settings, mask: np.ndarray, alt: str) -> str:
    tokens = settings.tokens
    cell = min(32.0, _TABLE / settings.size)
    numbered = [f"{token} {row + 1}" for row, token in enumerate(tokens)]
    left, top = room(numbered, cell)
    grid = Grid(numbered, tokens, left, top, cell)
    leaks = leaks_of(settings, mask)
    closed = settings.hidden & ~real(settings)
    shapes = []
    for row, column in np.ndindex(mask.shape):
        if mask[row, column]:
            fill = figures.GOLD if leaks[row, column] else figures.PALETTE[0]
            sign = "!" if leaks[row, column] else "●"
            shapes.append(grid.square(row, column, fill=fill, stroke="#ffffff"))
            shapes.append(grid.sign(row, column, sign, fill="#ffffff"))
        else:
            shapes.append(grid.square(row, column, stroke="#cccccc"))
            if closed[column]:
                shapes.append(grid.sign(row, column, "×", fill=shell.GREY))
    for row in np.flatnonzero(~mask.any(axis=1)):
        y = grid.top + (row + 0.5) * cell + 4
        shapes.append(grid.row_frame(row, stroke=figures.GOLD, stroke_width=2.5, stroke_dasharray="6 3"))
        shapes.append(shell.text(grid.right + 8, y, "◂ empty: sees nothing"))
    shapes.append(grid.row_frame(settings.row, stroke="#000000", stroke_width=2.5))
    return shell.svg(_WIDTH, grid.bottom + _BELOW, alt, *shapes, *grid.labels(settings.row))


# ---- the controls


class MaskBuilder(shell.Shell):
    """A control for each of the Settings; a change of any shows the new mask."""

    invitation = "Run this notebook to choose the pattern, its size and the padding."

    def __init__(self):
        super().__init__()
        first = Settings()
        look = {"style": shell.LABEL, "layout": widgets.Layout(width="98%")}

        def buttons(name: str, description: str, options, width: str) -> widgets.ToggleButtons:
            style = {**shell.LABEL, "button_width": width}
            return widgets.ToggleButtons(
                options=options, value=getattr(first, name), description=description, style=style
            )

        def slider(name: str, description: str, low: int, high: int) -> widgets.IntSlider:
            return widgets.IntSlider(getattr(first, name), min=low, max=high, description=description, **look)

        self.controls = {
            "pattern": buttons("pattern", "A token sees:", list(PATTERNS.items()), "13em"),
            "prefix": slider("prefix", "Prefix (tokens):", 1, len(WORDS)),
            "window": slider("window", "Window (tokens):", 1, len(WORDS)),
            "words": slider("words", "Words:", 1, len(WORDS)),
            "padding": slider("padding", "Padding (tokens):", 0, MAX_PADDING),
            "side": buttons("side", "Padding at the:", ["end", "start"], "5em"),
            "hidden": widgets.Checkbox(first.hidden, description="Use the padding mask", **look),
        }
        self.steps = shell.Stepper("Row in words:", "row", self.guarded(self.step))
        self.box = widgets.VBox([*self.controls.values(), self.steps.row, self.message, self.pane])
        self.update(first)
        for name, control in self.controls.items():
            change = self.guarded(lambda event, name=name: self.choose(name, event["new"]))
            control.observe(change, "value")

    def choose(self, name: str, value) -> None:
        """Take over one control."""
        settings = replace(self.settings, **{name: value})
        self.update(replace(settings, row=min(settings.row, settings.size - 1)))

    def step(self, row: int) -> None:
        """Tell another row in words."""
        if row != self.settings.row:
            self.update(replace(self.settings, row=min(max(row, 0), self.settings.size - 1)))

    def update(self, settings: Settings) -> None:
        """Bring every control in line with the settings, and show their mask."""
        self.pane.value = render(settings)
        self.settings = settings
        self.controls["prefix"].disabled = settings.pattern != "prefix"
        self.controls["window"].disabled = settings.pattern != "window"
        self.controls["side"].disabled = settings.padding == 0
        self.steps.show(settings.row, settings.size)
        self.message.value = ""

    def still(self) -> tuple[Figure, str]:
        """The four patterns beside each other, with the weights of tokens that score all alike."""
        panels, said = [], []
        for title, pattern in PATTERNS.items():
            settings = replace(self.settings, pattern=pattern)
            mask = mask_of(settings)
            weights = mask / mask.sum(axis=1, keepdims=True).clip(1)
            words = settings.tokens
            panels.append({"weights": weights, "source": words, "target": words, "title": title})
            said.append(f"{title}: {mask.sum()} of {mask.size} pairs allowed. {describe(settings, mask)}")
        title = "Four masks: the weights where all scores are equal"
        figure, _ = figures.attention_matrices.build(panels, title=title)
        return figure, f"{title}. {' '.join(said)}"
