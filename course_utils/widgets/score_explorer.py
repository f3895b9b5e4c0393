"""The score explorer: one query, five keys, and the weights that three scores make of them.

Plain functions (`scores_of`, `weights_of`, `render`) make what is shown; `ScoreExplorer` ties them to the
controls.
"""

import math
from dataclasses import dataclass, field, replace

import ipywidgets as widgets
import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure

from course_utils import figures
from course_utils.models.attention import AdditiveScore, DotScore, GeneralScore
from course_utils.widgets import shell

QUERY = "query"
FORMULAS = {"dot": "q · k", "general": "q · Wₐ k", "concat": "v · tanh(q + Wₐ k)"}
LONGEST = 4.0  # of an arrow that the reader moves


@dataclass(frozen=True)
class Arrow:
    """A vector of the plane by its angle (degrees, from the right, against the clock) and its length."""

    angle: float
    length: float

    @property
    def xy(self) -> np.ndarray:
        turned = math.radians(self.angle)
        return self.length * np.array([math.cos(turned), math.sin(turned)])


@dataclass(frozen=True)
class Settings:
    """What the reader can turn.

    Attributes:
        arrows: the query and the keys, by name.
        turn: by how many degrees W_a turns a key.
        stretch: by how much W_a lengthens a key.
    """

    arrows: dict[str, Arrow] = field(
        default_factory=lambda: {
            QUERY: Arrow(30, 1.0),
            "k1": Arrow(20, 1.0),
            "k2": Arrow(60, 2.0),
            "k3": Arrow(110, 1.2),
            "k4": Arrow(-150, 0.8),
            "k5": Arrow(-60, 1.5),
        }
    )
    turn: float = 0.0
    stretch: float = 1.0

    @property
    def query(self) -> np.ndarray:
        """(2,)"""
        return self.arrows[QUERY].xy

    @property
    def names(self) -> list[str]:
        """Of the keys."""
        return [name for name in self.arrows if name != QUERY]

    @property
    def keys(self) -> Float[np.ndarray, "keys 2"]:
        return np.stack([self.arrows[name].xy for name in self.names])

    @property
    def matrix(self) -> Float[np.ndarray, "2 2"]:
        """W_a."""
        first = Arrow(self.turn, self.stretch).xy
        return np.stack([first, [-first[1], first[0]]], axis=1)


def score_explorer() -> None:
    """Show the explorer: move a query, keys and W_a, and compare the weights of dot, general and concat.

    Where no widget can run, a picture of the largest weight against the length of the query is seen instead.
    """
    ScoreExplorer().show()


# ---- what is shown


def scores_of(settings: Settings) -> dict[str, Float[np.ndarray, " keys"]]:
    """The scores of every key by the three score modules of the course, in two dimensions.

    general has W_a; concat has W = [I, W_a] and v = (1, 1).
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():  # the weights drawn here are replaced
        modules = {"dot": DotScore(2, 2), "general": GeneralScore(2, 2), "concat": AdditiveScore(2, 2, 2)}
        matrix = torch.from_numpy(settings.matrix)
        modules["general"].key.weight.copy_(matrix)
        modules["concat"].query.weight.copy_(torch.eye(2))
        modules["concat"].key.weight.copy_(matrix)
        modules["concat"].v.fill_(1.0)
        query, keys = torch.from_numpy(settings.query)[None, None], torch.from_numpy(settings.keys)[None]
        scores = {}
        for name, module in modules.items():
            module.double()
            scores[name] = module(query, module.project_keys(keys))[0, 0].numpy()
    return scores


def weights_of(scores: Float[np.ndarray, " keys"]) -> Float[np.ndarray, " keys"]:
    """Their softmax."""
    raised = np.exp(scores - scores.max())
    return raised / raised.sum()


def render(settings: Settings) -> str:
    """The pane as HTML: the arrows, the weights of the three scores as bars, and what they do in words."""
    scores = scores_of(settings)
    return shell.pane(
        "Three scores of one query and five keys",
        _drawing(settings, scores, describe(settings, scores)),
        shell.status(summary(settings, scores)),
        shell.note(_note()),
    )


def summary(settings: Settings, scores: dict[str, np.ndarray]) -> str:
    """Where each score puts its largest weight, and how far its scores lie apart."""
    said = []
    for name, values in scores.items():
        weights = weights_of(values)
        if math.isclose(weights.max(), weights.min(), abs_tol=0.005):
            said.append(f"{name}: {shell.percent(weights.max())} on every key")
        else:
            best = settings.names[int(weights.argmax())]
            said.append(f"{name}: {shell.percent(weights.max())} on {best}")
    spread = {name: _signed(np.ptp(values)) for name, values in scores.items()}
    return (
        f"The largest weights are {'; '.join(said)}. From the lowest to the highest score there is a gap "
        f"of {spread['dot']} by dot, {spread['general']} by general, and {spread['concat']} by concat, where "
        "the two tanh allow no more than 4."
    )


def describe(settings: Settings, scores: dict[str, np.ndarray]) -> str:
    """The alt text: where the arrows point, and the weight of every key by every score."""
    arrows = ", ".join(
        f"{name} at {arrow.angle:.0f}° of length {arrow.length:.1f}"
        for name, arrow in settings.arrows.items()
    )
    bars = []
    for name, values in scores.items():
        shares = ", ".join(
            f"{key} {shell.percent(w)}" for key, w in zip(settings.names, weights_of(values), strict=True)
        )
        bars.append(f"{name}: {shares}")
    return (
        f"Arrows in a plane: {arrows}. W_a turns a key by {settings.turn:.0f}° and stretches it by "
        f"{settings.stretch:.2f}. Bars of the weights by {'; by '.join(bars)}."
    )


def _note() -> str:
    return (
        "Dotted arrows: what Wₐ makes of the keys. dot does not use Wₐ; as long as Wₐ turns by 0° and "
        "stretches by 1, general is dot. Here concat has the matrix W = [I, Wₐ] and v = (1, 1), so that you "
        "can follow it by hand; a trained one has learned its own. Make the query longer: dot grows sure of "
        "one key, while the tanh of concat are filled by the query and tell the keys apart less and less."
    )


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


# ---- the drawing

_SIZE = (760, 350)
_CENTRE, _RADIUS = (160, 178), 140
_LEFT, _COLUMN, _BAR = 362, 135, 118
_TOP, _ROW, _THICK = 74, 54, 16


def _drawing(settings: Settings, scores: dict[str, np.ndarray], alt: str) -> str:
    colours = dict(zip(settings.names, figures.PALETTE, strict=False))
    shapes = _plane(settings, colours)
    for row, name in enumerate(settings.names):
        place = (_LEFT - 12, _TOP + row * _ROW + _THICK - 3)
        shapes.append(shell.text(*place, name, text_anchor="end", font_weight="bold"))
    for column, (score, values) in enumerate(scores.items()):
        left = _LEFT + column * _COLUMN
        shapes.append(shell.text(left, 26, score, size=14, font_weight="bold"))
        shapes.append(shell.text(left, 44, FORMULAS[score], size=12))
        for row, (name, weight) in enumerate(zip(settings.names, weights_of(values), strict=True)):
            top = _TOP + row * _ROW
            shapes.append(shell.rect(left, top, _BAR * weight, _THICK, fill=colours[name]))
            shapes.append(shell.rect(left, top, _BAR, _THICK, stroke="#767676"))
            shapes.append(shell.text(left, top + _THICK + 15, _signed(values[row]), size=12, fill=shell.GREY))
            share = shell.percent(weight)
            shapes.append(
                shell.text(
                    left + _BAR, top + _THICK + 15, share, size=13, text_anchor="end", font_weight="bold"
                )
            )
    shapes.append(shell.text(_LEFT, _SIZE[1] - 8, "under each bar: score, weight", size=12, fill=shell.GREY))
    return shell.svg(*_SIZE, alt, *shapes)


def _plane(settings: Settings, colours: dict[str, str]) -> list[str]:
    """The arrows over rings of whole lengths; all fit in."""
    moved = dict(zip(settings.names, settings.keys @ settings.matrix.T, strict=True))
    end = max(2.0, *(float(np.hypot(*xy)) for xy in [settings.query, *settings.keys, *moved.values()]))
    unit = _RADIUS / end
    step = math.ceil(end / 5)
    x, y = _CENTRE
    shapes = [
        shell.path(f"M{x - _RADIUS} {y}h{2 * _RADIUS}M{x} {y - _RADIUS}v{2 * _RADIUS}", stroke="#dddddd")
    ]
    for length in range(step, math.floor(end) + 1, step):
        ring = length * unit
        circle = f"M{x - ring:.1f} {y}a{ring:.1f} {ring:.1f} 0 1 0 {2 * ring:.1f} 0"
        shapes.append(shell.path(f"{circle}a{ring:.1f} {ring:.1f} 0 1 0 {-2 * ring:.1f} 0", stroke="#dddddd"))
        shapes.append(shell.text(x + 3, y + ring - 3, str(length), size=11, fill=shell.GREY))
    for name, key in zip(settings.names, settings.keys, strict=True):
        if not np.allclose(moved[name], key):
            dotted = {"stroke_width": 2, "stroke_dasharray": "2 4"}
            shapes += _arrow(moved[name] * unit, colours[name], f"Wₐ{name}", size=11, **dotted)
        shapes += _arrow(key * unit, colours[name], name, stroke_width=3)
    return [*shapes, *_arrow(settings.query * unit, "#000000", "q", stroke_width=4.5)]


def _arrow(tip: np.ndarray, colour: str, name: str, *, size: float = 13, **look) -> list[str]:
    """An arrow from the centre to `tip` (y up), with its name beyond the tip."""
    x, y = _CENTRE[0] + tip[0], _CENTRE[1] - tip[1]
    angle, reach = math.atan2(-tip[1], tip[0]), float(np.hypot(*tip))
    barb = min(10.0, 0.5 * reach)
    barbs = [(x - barb * math.cos(angle + turn), y - barb * math.sin(angle + turn)) for turn in (0.45, -0.45)]
    head = f"M{barbs[0][0]:.1f} {barbs[0][1]:.1f}L{x:.1f} {y:.1f}L{barbs[1][0]:.1f} {barbs[1][1]:.1f}"
    line = f"M{_CENTRE[0]} {_CENTRE[1]}L{x:.1f} {y:.1f}"
    solid = {key: value for key, value in look.items() if key != "stroke_dasharray"}
    place = (x + 12 * math.cos(angle), y + 12 * math.sin(angle) + 5)
    return [
        shell.path(line, stroke=colour, **look),
        shell.path(head, stroke=colour, **solid),
        shell.text(*place, name, size=size, text_anchor="middle"),
    ]


# ---- the controls


class ScoreExplorer(shell.Shell):
    """Buttons that choose an arrow, sliders that move it, and sliders for W_a."""

    invitation = "Run this notebook to move the query, the keys and the matrix."

    def __init__(self):
        super().__init__()
        self.settings = Settings()
        look = {"style": shell.LABEL, "layout": widgets.Layout(width="98%")}
        first = self.settings.arrows[QUERY]
        self.choice = widgets.ToggleButtons(
            options=list(self.settings.arrows),
            description="Move:",
            style={**shell.LABEL, "button_width": "5em"},
        )
        self.angle = widgets.IntSlider(
            first.angle, min=-180, max=180, step=5, description="Its angle (°):", **look
        )
        self.length = widgets.FloatSlider(
            first.length,
            min=0,
            max=LONGEST,
            step=0.1,
            description="Its length:",
            readout_format=".1f",
            **look,
        )
        self.turn = widgets.IntSlider(0, min=-180, max=180, step=15, description="Wₐ turns by (°):", **look)
        self.stretch = widgets.FloatSlider(1, min=0, max=3, step=0.25, description="Wₐ stretches by:", **look)
        controls = [self.choice, self.angle, self.length, self.turn, self.stretch]
        self.box = widgets.VBox([*controls, self.message, self.pane])
        self.update(self.settings)
        self.choice.observe(self.guarded(lambda _: self.choose()), "value")
        for name in ("angle", "length"):
            getattr(self, name).observe(
                self.guarded(lambda change, name=name: self.move(name, change)), "value"
            )
        for name in ("turn", "stretch"):
            getattr(self, name).observe(
                self.guarded(
                    lambda change, name=name: self.update(replace(self.settings, **{name: change["new"]}))
                ),
                "value",
            )

    def choose(self) -> None:
        """Bring the sliders to the chosen arrow."""
        arrow = self.settings.arrows[self.choice.value]
        self.angle.value, self.length.value = arrow.angle, arrow.length

    def move(self, part: str, change: dict) -> None:
        """Give the chosen arrow another angle or length."""
        name = self.choice.value
        arrow = replace(self.settings.arrows[name], **{part: change["new"]})
        self.update(replace(self.settings, arrows={**self.settings.arrows, name: arrow}))

    def update(self, settings: Settings) -> None:
        self.pane.value = render(settings)
        self.settings = settings
        self.message.value = ""

    def still(self) -> tuple[Figure, str]:
        """How sure each score grows with the length of the query."""
        lengths = np.arange(0, LONGEST + 0.1, 0.25)
        largest = {name: [] for name in FORMULAS}
        for length in lengths:
            query = replace(self.settings.arrows[QUERY], length=float(length))
            moved = replace(self.settings, arrows={**self.settings.arrows, QUERY: query}, turn=0, stretch=0.5)
            for name, scores in scores_of(moved).items():
                largest[name].append(weights_of(scores).max())
        return figures.curve.build(
            lengths,
            largest,
            xlabel="length of the query (Wₐ halves a key)",
            ylabel="largest of the five weights",
            title="A longer query makes dot and general sure, and concat less so",
        )
