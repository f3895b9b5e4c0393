"""The position explorer: encodings as a strip, the product of two positions, and a shift as a rotation.

Plain functions (`encodings_of`, `products_of`, `render`) make what is shown; `PositionExplorer` ties them to
the controls.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import ipywidgets as widgets
import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure

from course_utils import figures
from course_utils.figures.base import plain
from course_utils.models.positions import frequencies, rotary, sinusoidal
from course_utils.widgets import shell

LENGTH, MAX_WIDTH = 64, 64
FARTHEST = LENGTH // 2  # position and distance go up to here, so that both together stay within the length
KINDS = {"sinusoidal (added)": "sinusoidal", "rotary (turned)": "rotary"}


@dataclass(frozen=True)
class Settings:
    """What the reader can turn.

    Attributes:
        kind: encodings that are added to the embeddings, or queries and keys that are turned.
        width: of an encoding, or of a query; even.
        position: p.
        distance: d, from p on.
        pair: which pair of numbers is drawn on the circle, from 1.
    """

    kind: Literal["sinusoidal", "rotary"] = "sinusoidal"
    width: int = 32
    position: int = 8
    distance: int = 5
    pair: int = 3

    @property
    def other(self) -> int:
        """p + d"""
        return self.position + self.distance

    @property
    def step(self) -> float:
        """By how much a step of one position turns the pair, in radians."""
        return float(frequencies(self.width)[self.pair - 1])


def position_explorer() -> None:
    """Show the explorer: turn width, position and distance of sinusoidal or rotary positions.

    Where no widget can run, a picture of the sinusoidal encodings is seen instead.
    """
    PositionExplorer().show()


# ---- what is shown


def encodings_of(settings: Settings) -> Float[np.ndarray, "positions width"]:
    """What stands in the strip: the encoding of each position, or one and the same query turned at each."""
    positions = torch.arange(LENGTH)
    if settings.kind == "sinusoidal":
        return sinusoidal(positions, settings.width, base=10_000.0).numpy()
    return _turned(_content(settings)[0])


def products_of(settings: Settings, position: int | None = None) -> Float[np.ndarray, " positions"]:
    """The product of a position (p by default) with every position.

    Of two encodings, or of a turned query with a turned key.
    """
    here = settings.position if position is None else position
    rows = encodings_of(settings)
    keys = rows if settings.kind == "sinusoidal" else _turned(_content(settings)[1])
    return keys @ rows[here]


def _content(settings: Settings) -> Float[torch.Tensor, "2 width"]:
    """A query and a key without position; those of a smaller width begin those of a larger one."""
    both = torch.randn(2, MAX_WIDTH, generator=torch.Generator().manual_seed(2))
    both[1] = 0.7 * both[0] + 0.7 * both[1]  # somewhat alike, as a query and a key that fit
    return both[:, : settings.width]


def _turned(vector: Float[torch.Tensor, " width"]) -> Float[np.ndarray, "positions width"]:
    return rotary(vector.expand(LENGTH, -1), torch.arange(LENGTH)).numpy()


def render(settings: Settings) -> str:
    """The pane as HTML: strip, products and circle, and what they say in words."""
    return shell.pane(
        "Positions",
        _drawing(settings, describe(settings)),
        shell.status(summary(settings)),
        shell.note(_note(settings)),
    )


def summary(settings: Settings) -> str:
    """The rotation of the pair, and the product at p and p + d beside that at 0 and d."""
    p, d, turn = settings.position, settings.distance, math.degrees(settings.step)
    here, start = products_of(settings)[settings.other], products_of(settings, 0)[d]
    formula = "PE({}) · PE({})" if settings.kind == "sinusoidal" else "(query at {}) · (key at {})"
    around = 360 / turn
    return (
        f"Pair {settings.pair} of {settings.width // 2} turns by {plain(turn)}° a position (once around in "
        f"{plain(around)}), so a shift of {d} turns it by {plain(turn * d)}° wherever it starts. "
        f"{formula.format(p, settings.other)} = {_signed(here)}; {formula.format(0, d)} = {_signed(start)}."
    )


def describe(settings: Settings) -> str:
    """The alt text: what the strip shows, the course of the products, and both places on the circle."""
    p, products = settings.position, products_of(settings)
    what = "sinusoidal encodings" if settings.kind == "sinusoidal" else "one query turned by rotary positions"
    low, high = int(products.argmin()), int(products.argmax())
    first, second = (math.degrees(angle) % 360 for angle in _angles(settings))
    return (
        f"Heat strip of {what}: {settings.width} numbers down, positions 0 to {LENGTH - 1} across. Below it "
        f"the product of position {p} with every other: {_signed(products[p])} with itself, highest "
        f"{_signed(products[high])} at {high}, lowest {_signed(products[low])} at {low}. Beside it pair "
        f"{settings.pair} on a circle: at {first:.0f}° for position {p}, at {second:.0f}° for position "
        f"{settings.other}."
    )


def _angles(settings: Settings) -> tuple[float, float]:
    """Where the pair stands at p and at p + d, in radians."""
    first, second = encodings_of(settings)[settings.position].reshape(-1, 2)[settings.pair - 1]
    sine_first = settings.kind == "sinusoidal"
    angle = math.atan2(first, second) if sine_first else math.atan2(second, first)
    return angle, angle + settings.distance * settings.step


def _note(settings: Settings) -> str:
    key = figures.strips_key({"Strip": encodings_of(settings).T}, ["Strip"])[0]
    if settings.kind == "sinusoidal":
        return (
            f"{key} Rows come in pairs of sine and cosine, the fast ones on top. The product of two of them "
            "is the sum over pairs of the cosine of the angle: the curve keeps its shape and moves with p. "
            "Added to embeddings, encodings also mix with what the words say."
        )
    return (
        f"{key} The strip is one random query, turned at each position; the curve is its product with one "
        "key, turned at each position too. Their contents stay the same, so only the distance moves the "
        "product; at distance 0 it is that of query and key unturned."
    )


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


# ---- the drawing

_SIZE = (760, 372)
_LEFT, _RIGHT = 64, 530
_STRIP = (30, 170)  # top and height
_CHART = (226, 100)
_CENTRE, _RADIUS = (650, 136), 66
_HERE, _THERE = "#000000", figures.PALETTE[1]


def _drawing(settings: Settings, alt: str) -> str:
    shapes = [*_strip(settings), *_chart(settings), *_circle(settings)]
    column = (_RIGHT - _LEFT) / LENGTH
    bottom = sum(_CHART)
    for position, name, look in (
        (settings.other, "p + d", {"stroke": _THERE, "stroke_dasharray": "5 3"}),
        (settings.position, "p", {"stroke": _HERE}),
    ):
        left = _LEFT + position * column
        shapes.append(shell.rect(left, _STRIP[0], column, bottom - _STRIP[0], stroke_width=2, **look))
        if name == "p" or settings.distance > 2:
            shapes.append(shell.text(left + column / 2, _STRIP[0] - 8, name, text_anchor="middle"))
    halo = {"stroke": "#ffffff", "stroke_width": 4, "paint_order": "stroke"}
    shapes.append(shell.text(_LEFT, _CHART[0] - 7, "product with position p", size=12, **halo))
    return shell.svg(*_SIZE, alt, *shapes)


def _strip(settings: Settings) -> list[str]:
    top, height = _STRIP
    row = height / settings.width
    pair = top + 2 * (settings.pair - 1) * row
    return [
        shell.strip(_LEFT, top, _RIGHT - _LEFT, height, encodings_of(settings).T, signed=True),
        shell.rect(_LEFT - 3, pair, _RIGHT - _LEFT + 6, 2 * row, stroke="#000000", stroke_width=1.5),
        shell.text(_LEFT - 8, pair + row + 4, f"pair {settings.pair} ▸", text_anchor="end"),
    ]


def _chart(settings: Settings) -> list[str]:
    """The products by position, on the positions of the strip."""
    top, height = _CHART
    products = products_of(settings)
    low, high = min(0.0, products.min()), max(0.0, products.max())
    column = (_RIGHT - _LEFT) / LENGTH

    def place(position: int) -> str:
        down = top + 5 + (height - 10) * (high - products[position]) / (high - low)
        return f"{_LEFT + (position + 0.5) * column:.1f} {down:.1f}"

    zero = top + 5 + (height - 10) * high / (high - low)
    shapes = [
        shell.rect(_LEFT, top, _RIGHT - _LEFT, height, stroke="#767676"),
        shell.path(f"M{_LEFT} {zero:.1f}H{_RIGHT}", stroke="#bbbbbb"),
        shell.text(_LEFT - 8, zero + 4, "0", text_anchor="end", size=12),
        shell.path("M" + "L".join(map(place, range(LENGTH))), stroke=figures.PALETTE[0], stroke_width=2),
    ]
    for value, y in ((high, top + 14), (low, top + height - 4)):
        if abs(zero - y) > 14:
            shapes.append(shell.text(_LEFT - 8, y, _signed(value), text_anchor="end", size=12))
    for position, colour in ((settings.position, _HERE), (settings.other, _THERE)):
        dot = {"stroke": colour, "stroke_width": 9, "stroke_linecap": "round"}
        shapes.append(shell.path(f"M{place(position)}h0", **dot))
    for position in range(0, LENGTH, 10):
        x = _LEFT + (position + 0.5) * column
        shapes.append(shell.text(x, top + height + 16, str(position), text_anchor="middle", size=12))
    middle = (_LEFT + _RIGHT) / 2
    return [
        *shapes,
        shell.text(middle, top + height + 36, "position (tokens from the first)", text_anchor="middle"),
    ]


def _circle(settings: Settings) -> list[str]:
    """The pair at p and at p + d as two hands of a clock."""
    x, y = _CENTRE
    first, second = _angles(settings)
    turn = math.degrees(settings.distance * settings.step)

    def at(angle: float, radius: float) -> tuple[float, float]:
        return x + radius * math.cos(angle), y - radius * math.sin(angle)

    shapes = [
        shell.path(
            f"M{x - _RADIUS} {y}a{_RADIUS} {_RADIUS} 0 1 0 {2 * _RADIUS} 0a{_RADIUS} {_RADIUS} 0 1 0 "
            f"{-2 * _RADIUS} 0",
            stroke="#bbbbbb",
        ),
        shell.text(x, 20, f"pair {settings.pair} as a hand of a clock", text_anchor="middle"),
        shell.text(
            x, y + _RADIUS + 58, f"turned by {plain(turn)}°", text_anchor="middle", font_weight="bold"
        ),
        shell.text(
            x,
            y + _RADIUS + 78,
            f"= {settings.distance} × {plain(math.degrees(settings.step))}°",
            text_anchor="middle",
        ),
    ]
    shown = min(
        settings.distance * settings.step, 2 * math.pi - 0.01
    )  # more than once around looks like once
    arc = [at(first + shown * part / 40, 0.45 * _RADIUS) for part in range(41)]
    if settings.distance:
        line = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in arc)
        shapes.append(shell.path(line, stroke=figures.PALETTE[0], stroke_width=2))
    for angle, colour, name, look in (
        (second, _THERE, "p + d", {"stroke_dasharray": "5 3"}),
        (first, _HERE, "p", {}),
    ):
        close = name == "p + d" and math.cos(second - first) > 0.9  # its label gives way to that of p
        tip, label = at(angle, _RADIUS), at(angle, _RADIUS + (36 if close else 16))
        shapes.append(
            shell.path(f"M{x} {y}L{tip[0]:.1f} {tip[1]:.1f}", stroke=colour, stroke_width=3, **look)
        )
        dot = {"stroke": colour, "stroke_width": 9, "stroke_linecap": "round"}
        shapes.append(shell.path(f"M{tip[0]:.1f} {tip[1]:.1f}h0", **dot))
        if name == "p" or settings.distance:
            shapes.append(shell.text(label[0], label[1] + 4, name, text_anchor="middle"))
    return shapes


# ---- the controls


class PositionExplorer(shell.Shell):
    """A control for each of the Settings; a change of any shows the new picture."""

    invitation = "Run this notebook to turn width, position, distance and pair, and to see rotary positions."

    def __init__(self):
        super().__init__()
        first = Settings()
        look = {"style": shell.LABEL, "layout": widgets.Layout(width="98%")}

        def slider(name: str, description: str, low: int, high: int, step: int = 1) -> widgets.IntSlider:
            value = getattr(first, name)
            return widgets.IntSlider(value, min=low, max=high, step=step, description=description, **look)

        self.controls = {
            "kind": widgets.ToggleButtons(
                options=list(KINDS.items()),
                description="Positions are:",
                style={**shell.LABEL, "button_width": "12em"},
            ),
            "width": slider("width", "Width:", 2, MAX_WIDTH, 2),
            "position": slider("position", "Position p:", 0, FARTHEST - 1),
            "distance": slider("distance", "Distance d:", 0, FARTHEST),
            "pair": slider("pair", "Pair on the clock:", 1, first.width // 2),
        }
        self.box = widgets.VBox([*self.controls.values(), self.message, self.pane])
        self.update(first)
        for name, control in self.controls.items():
            change = self.guarded(lambda event, name=name: self.choose(name, event["new"]))
            control.observe(change, "value")

    def choose(self, name: str, value) -> None:
        """Take over one control; a smaller width may leave fewer pairs."""
        settings = replace(self.settings, **{name: value})
        self.update(replace(settings, pair=min(settings.pair, settings.width // 2)))

    def update(self, settings: Settings) -> None:
        """Bring the controls in line with the settings, and show them."""
        self.pane.value = render(settings)
        self.settings = settings
        pair = self.controls["pair"]
        pair.max = max(settings.width // 2, 2)  # the browser's slider has no meaning for one step
        pair.value, pair.disabled = settings.pair, settings.width == 2
        self.message.value = ""

    def still(self) -> tuple[Figure, str]:
        """The encodings as heat strips."""
        settings = self.settings
        labels = [str(position) for position in range(LENGTH)]
        panels = {"sinusoidal": encodings_of(settings).T}
        title = f"Sinusoidal encodings of width {settings.width}"
        figure, _ = figures.heat_strips.build(panels, labels, signed=["sinusoidal"], title=title)
        return figure, f"{title}. {describe(settings)}"
