"""The cache explorer: write word by word, and see what a cache of keys and values saves, and what it holds.

Plain functions (`multiplications`, `cache_bytes`, `render`) make what is shown; `CacheExplorer` ties them to
the controls.
"""

from dataclasses import dataclass, replace

import ipywidgets as widgets
import numpy as np
from matplotlib.figure import Figure

from course_utils import figures
from course_utils.models.masks import causal_mask
from course_utils.widgets import shell
from course_utils.widgets.grid import Grid, room

WRITTEN = ["a", "small", "cat", "sleeps", "under", "the", "old", "table", "<eos>"]
READ = ["<bos>", *WRITTEN[:-1]]  # step t reads READ[t] and writes WRITTEN[t]
POWERS = [1, 2, 4, 8, 16, 32, 64]
BYTES = 2  # of a number in 16 bits
LONG = 4096  # tokens


@dataclass(frozen=True)
class Settings:
    """What the reader can turn.

    Attributes:
        layers: blocks with self-attention.
        heads: of queries.
        own: the width of a head.
        key_heads: heads of keys and values, each shared by heads / key_heads heads of queries.
        step: which word is written, from 0.
    """

    layers: int = 12
    heads: int = 8
    own: int = 64
    key_heads: int = 8
    step: int = 0

    @property
    def tokens(self) -> int:
        """How many have been read, the current one included."""
        return self.step + 1


def cache_explorer() -> None:
    """Show the explorer: step through decoding, with and without a cache; size the cache by sliders.

    Where no widget can run, a picture of the multiplications by length is seen instead.
    """
    CacheExplorer().show()


# ---- what is shown


def multiplications(settings: Settings, tokens: int, cached: bool) -> dict[str, int]:
    """How many multiplications the self-attention of all layers takes to write one word, by what they make.

    tokens: how many have been read, the current one included. Without a cache all of them go through the
    layers again, as in training; with one, the newest alone does.
    """
    new = 1 if cached else tokens
    width, shared = settings.heads * settings.own, settings.key_heads * settings.own
    parts = {
        "queries": new * width * width,
        "keys and values": 2 * new * width * shared,
        "scores q · k": new * tokens * width,
        "weighted sums of values": new * tokens * width,
        "output": new * width * width,
    }
    return {name: settings.layers * count for name, count in parts.items()}


def cache_bytes(settings: Settings, tokens: int) -> int:
    """How many bytes the cache of one sequence holds: keys and values of all layers, numbers in 16 bits."""
    return 2 * settings.layers * settings.key_heads * settings.own * tokens * BYTES


def render(settings: Settings) -> str:
    """The pane as HTML: both ways side by side, their multiplications as a table, and the memory in words."""
    return shell.pane(
        "Decoding with and without a cache",
        '<div style="display:flex;flex-wrap:wrap;gap:12px 20px;align-items:center">',
        f'<div style="flex:1 1 420px;max-width:{_WIDTH}px">{_drawing(settings, describe(settings))}</div>',
        f"{_table(settings)}</div>",
        shell.status(summary(settings)),
        shell.note(_note(settings)),
    )


def summary(settings: Settings) -> str:
    """What this step reads, what is kept, the work of all steps so far, and the memory."""
    step, tokens = settings.step, settings.tokens
    kept = f"{step} of the {tokens} keys and values come from the cache" if step else "the cache is empty"
    without, cached = (
        sum(sum(multiplications(settings, t, kind).values()) for t in range(1, tokens + 1))
        for kind in (False, True)
    )
    return (
        f"Step {tokens} of {len(READ)} reads “{READ[step]}” and writes “{WRITTEN[step]}”: {kept}, one is "
        f"new. Row {tokens} of the causal mask is True for all {tokens} tokens so far; with the cache it is "
        f"the only row, and no mask is needed. All steps up to here: {_count(without)} multiplications "
        f"without a cache, {_count(cached)} with it ({without / cached:.1f} to 1). The cache holds "
        f"{_size(cache_bytes(settings, tokens))} now, and {_size(cache_bytes(settings, LONG))} at "
        f"{LONG:,} tokens{_grouped(settings)}."
    )


def _grouped(settings: Settings) -> str:
    share = settings.heads // settings.key_heads
    if share == 1:
        return ""
    all_heads = cache_bytes(replace(settings, key_heads=settings.heads), LONG)
    return (
        f", where a cache of all {settings.heads} heads would hold {_size(all_heads)} ({share} times as much)"
    )


def describe(settings: Settings) -> str:
    """The alt text: which keys, values and rows of scores are made in this step, either way."""
    tokens = settings.tokens
    said = (
        f"Two tables of queries as rows by keys as columns for the tokens {', '.join(READ[:tokens])}. "
        f"Without a cache, step {tokens} makes all {tokens} keys and values and all {tokens * tokens} "
        f"scores, {tokens * (tokens - 1) // 2} of which the mask throws away."
    )
    if not settings.step:
        return f"{said} With a cache it is the same in this first step."
    return (
        f"{said} With a cache, keys and values of the first {settings.step} are kept, one of each is made, "
        f"and so are the {tokens} scores of the last row."
    )


def _note(settings: Settings) -> str:
    width = settings.heads * settings.own
    return (
        "Orange with a dot: made in this step; with a cross: made, then masked. Pale blue with a tick: kept. "
        "Grey: scores of earlier steps, which nobody needs again. "
        f"Width {settings.heads} × {settings.own} = {width}. Counted are the matrix products of "
        "self-attention, with all scores made before the mask; the rest of each block is repeated without a "
        "cache as well. The memory is that of one sequence in numbers of 16 bits; 1 MB is a million bytes."
    )


def _count(number: float) -> str:
    """A count in short: 1,234 or 12.3 million."""
    for power, name in ((12, "trillion"), (9, "billion"), (6, "million")):
        if number >= 10**power:
            return f"{number / 10**power:.3g} {name}"
    return f"{number:,.0f}"


def _size(number: int) -> str:
    """Bytes in short: 512 bytes or 1.05 MB."""
    for power, name in ((9, "GB"), (6, "MB"), (3, "kB")):
        if number >= 10**power:
            return f"{number / 10**power:.3g} {name}"
    return f"{number} bytes"


def _table(settings: Settings) -> str:
    """The multiplications of this step, part by part."""
    without, cached = (multiplications(settings, settings.tokens, kind) for kind in (False, True))
    rows = [*((name, without[name], cached[name]) for name in without)]
    rows.append(("together", sum(without.values()), sum(cached.values())))
    look = 'style="text-align:right;padding:2px 0 2px 14px"'
    body = "".join(
        f'<tr><th scope="row" style="text-align:left;font-weight:normal">{name}</th>'
        f"<td {look}>{_count(a)}</td><td {look}>{_count(b)}</td></tr>"
        for name, a, b in rows
    )
    head = f'<tr><th></th><th scope="col" {look}>no cache</th><th scope="col" {look}>cache</th></tr>'
    caption = f"Multiplications of step {settings.tokens}, all layers"
    return (
        '<table style="border-collapse:collapse;font-size:13px;color:#000;background:#fff">'
        f'<caption style="text-align:left;font-weight:bold;color:#000;padding:4px 0">{caption}</caption>'
        f"{head}{body}</table>"
    )


# ---- the drawing

_WIDTH, _CELL = 600, 23.0
_NEW, _KEPT = figures.PALETTE[1], "#cfe6f5"


def _drawing(settings: Settings, alt: str) -> str:
    side, head = room(READ, _CELL)
    shapes, left = [], side
    for title, cached in (("without a cache", False), ("with a cache", True)):
        shapes += _way(settings, title, cached, left, head)
        left += _CELL * len(READ) + side
    return shell.svg(_WIDTH, head + 66 + _CELL * (2 + len(READ)), alt, *shapes)


def _way(settings: Settings, title: str, cached: bool, left: float, head: float) -> list[str]:
    """The keys and values, and under them the scores, of one way to write the word."""
    memory = Grid(["keys", "values"], READ, left, head + 16, _CELL)
    scores = Grid(READ, READ, left, memory.bottom + 20, _CELL)
    shapes = [shell.text(left, 14, title, size=14, font_weight="bold")]
    for token in range(len(READ)):
        for row in range(2):
            shapes += _cell(memory, row, token, _state(settings, token, cached))
    seen = causal_mask(len(READ)).numpy()
    for row, column in np.ndindex(seen.shape):
        state = _state(settings, row, cached)
        if column > settings.step:
            state = ""
        elif not seen[row, column]:
            state = "masked" if state == "new" else ""
        elif state == "kept":
            state = "past"
        shapes += _cell(scores, row, column, state)
    shapes.append(scores.row_frame(settings.step, stroke="#000000", stroke_width=2.5))
    labels = Grid(scores.rows, [], left, scores.top, _CELL).labels(settings.step)
    middle = (scores.left + scores.right) / 2
    below = shell.text(middle, scores.bottom + 18, "scores: query (row) · key (column)", text_anchor="middle")
    return [*shapes, *memory.labels(), *labels, below]


def _state(settings: Settings, token: int, cached: bool) -> str:
    """What becomes of a token's query, key and value in this step: new, kept, or nothing yet."""
    if token > settings.step:
        return ""
    return "kept" if cached and token < settings.step else "new"


def _cell(grid: Grid, row: int, column: int, state: str) -> list[str]:
    """A cell of the given state; "past" are scores of earlier steps, which nobody needs any more."""
    fill, sign, ink = {
        "new": (_NEW, "●", "#ffffff"),
        "masked": (_NEW, "×", "#ffffff"),
        "kept": (_KEPT, "✓", "#000000"),
        "past": ("#f2f2f2", "", ""),
        "": ("none", "", ""),
    }[state]
    shapes = [grid.square(row, column, fill=fill, stroke="#bbbbbb")]
    return [*shapes, grid.sign(row, column, sign, fill=ink)] if sign else shapes


# ---- the controls


class CacheExplorer(shell.Shell):
    """A stepper through the words, and a slider for each size."""

    invitation = "Run this notebook to step through the words and to size the cache."

    def __init__(self):
        super().__init__()
        first = Settings()
        look = {"style": shell.LABEL, "layout": widgets.Layout(width="98%")}

        def slider(name: str, description: str, options: list[int]) -> widgets.SelectionSlider:
            value = getattr(first, name)
            return widgets.SelectionSlider(options=options, value=value, description=description, **look)

        self.sizes = {
            "layers": widgets.IntSlider(first.layers, min=1, max=96, description="Layers:", **look),
            "heads": slider("heads", "Heads:", POWERS),
            "own": slider("own", "Width of a head:", [16, 32, 64, 128, 256]),
            "key_heads": slider("key_heads", "Key heads:", POWERS),
        }
        self.steps = shell.Stepper("Step:", "step", self.guarded(self.step), play=True)
        self.box = widgets.VBox([self.steps.row, *self.sizes.values(), self.message, self.pane])
        self.update(first)
        for name, control in self.sizes.items():
            change = self.guarded(lambda event, name=name: self.resize(name, event["new"]))
            control.observe(change, "value")

    def resize(self, name: str, value: int) -> None:
        """Take over one size; there cannot be more key heads than heads."""
        if value == getattr(self.settings, name):
            return
        settings = replace(self.settings, **{name: value})
        self.update(replace(settings, key_heads=min(settings.key_heads, settings.heads)))
        if name == "key_heads" and value > settings.heads:
            told = f"{value} key heads are more than the {settings.heads} heads that could share them."
            self.message.value = shell.message(f"{told} Choose more heads first.", "status")

    def step(self, step: int) -> None:
        if step != self.settings.step:
            self.update(replace(self.settings, step=min(max(step, 0), len(READ) - 1)))

    def update(self, settings: Settings) -> None:
        """Bring every control in line with the settings, and show them."""
        self.pane.value = render(settings)
        self.settings = settings
        self.sizes["key_heads"].value = settings.key_heads
        self.steps.show(settings.step, len(READ))
        self.message.value = ""

    def still(self) -> tuple[Figure, str]:
        """The multiplications of one step against the length."""
        lengths = [2**power for power in range(12)]
        series = {
            name: [sum(multiplications(self.settings, t, cached).values()) / 1e6 for t in lengths]
            for name, cached in (("without a cache", False), ("with a cache", True))
        }
        return figures.curve.build(
            lengths,
            series,
            xlabel="tokens read so far",
            ylabel="million multiplications for a word",
            title="A cache leaves one row of work a step",
            xscale="log",
            yscale="log",
        )
