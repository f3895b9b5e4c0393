"""The gate viewer: play a sequence through an LSTM, and see what its gates let in, keep and let out.

Plain functions (`read`, `step_to`, `render`) make what is shown; `GateViewer` ties them to the controls.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import ipywidgets as widgets
import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from course_utils import figures
from course_utils.figures.base import plain
from course_utils.models.recurrent import Gates, Recurrent, gates_of
from course_utils.widgets import shell

MAX_UNITS = 24  # more rows than this cannot be told apart
CELL = "tanh(cell)"  # as the leave gate lets it out: the same scale for every sequence and bias


@dataclass(frozen=True)
class View:
    """One sequence that an LSTM has read, and the step that is looked at (`position`, counted from 0)."""

    labels: tuple[str, ...]  # one a step
    gates: Gates  # arrays (steps, hidden)
    rows: np.ndarray  # the units that are drawn, from top to bottom
    shift: float = 0.0  # what was added to the forget bias
    position: int = 0

    @property
    def strips(self) -> dict[str, np.ndarray]:
        """What is drawn, each (rows, steps)."""
        gates = self.gates
        named = {"enter gate": gates.enter, "forget gate": gates.forget, "leave gate": gates.leave}
        return {name: values[:, self.rows].T for name, values in {**named, CELL: np.tanh(gates.cell)}.items()}


def gate_viewer(
    layer: Recurrent,
    inputs: Mapping[str, Float[Tensor, "length input"]],
    labels: Mapping[str, Sequence[str]],
) -> None:
    """Show the viewer: choose a sequence, play it through the LSTM, move its forget bias.

    layer: of kind "lstm"; it stays as it is, a copy gets the moved bias. inputs: {name: sequence}. labels:
    {name: a label for each step of that sequence}.

    Where no widget can run, a picture of the first sequence is seen instead. Raises ValueError for a layer of
    another kind, no sequence, and labels that do not fit.
    """
    GateViewer(layer, inputs, labels).show()


# ---- what is shown


def read(layer: Recurrent, x: Float[Tensor, "length input"], shift: float = 0.0) -> Gates:
    """The gates of a copy of the layer with `shift` added to its forget bias; arrays (length, hidden)."""
    moved = deepcopy(layer)
    with torch.no_grad():
        _, forget, *_ = moved.rnn.bias_hh_l0.chunk(4)
        forget.add_(shift)
        gates = gates_of(moved, x[None].to(forget))
    return Gates(*(values[0].double().cpu().numpy() for values in gates))


def rows_of(forget: Float[np.ndarray, "steps hidden"]) -> np.ndarray:
    """The units to draw, from the one that keeps most to the one that keeps least.

    Of more than 24 units, those at even distances in this order, both ends among them.
    """
    order = np.argsort(-forget.mean(axis=0), kind="stable")
    picked = np.linspace(0, len(order) - 1, min(len(order), MAX_UNITS))
    return order[picked.round().astype(int)]


def step_to(view: View, position: int) -> View:
    """The same sequence with another step looked at, within its ends."""
    return replace(view, position=min(max(position, 0), len(view.labels) - 1))


def render(view: View) -> str:
    """The pane as HTML: the strips with the current step marked, and what the gates do there in words."""
    return shell.pane(
        "Gates of an LSTM, step by step",
        _drawing(view, figures.strips_alt(view.strips, view.labels)),
        shell.status(summary(view)),
        shell.note(_note(view)),
    )


def summary(view: View) -> str:
    """What the gates do at the current step, over all units."""
    step, gates = view.position, view.gates
    forget = gates.forget[step]
    said = [
        f"Step {step + 1} of {len(view.labels)}, “{view.labels[step]}”: the mean forget gate is "
        f"{forget.mean():.2f}; {(forget > 0.9).sum()} of {len(forget)} units keep more than 90%. "
        f"The mean enter gate is {gates.enter[step].mean():.2f}, the mean leave gate "
        f"{gates.leave[step].mean():.2f}; the cells lie between {plain(gates.cell[step].min())} and "
        f"{plain(gates.cell[step].max())}."
    ]
    if step:
        kept = np.median(gates.forget[1 : step + 1].prod(axis=0))  # forget gates after the first step
        share = "less than 0.1%" if kept < 0.001 else f"{100 * kept:.1f}%"
        said.append(f"Of what the first step wrote, the median unit still holds {share}.")
    return " ".join(said)


def _note(view: View) -> str:
    hidden, rows = view.gates.forget.shape[1], len(view.rows)
    which = f"{rows} of the {hidden} units" if rows < hidden else f"All {hidden} units"
    said = [f"{which}, from the one that keeps most (top) to the one that keeps least."]
    said += figures.strips_key(view.strips, [CELL])
    if view.shift:
        shift = f"{view.shift:+.1f}".replace("-", "−")
        said.append(f"{shift} is added to the forget bias of a copy; your layer is unchanged.")
    return " ".join(said)


# ---- the drawing

_WIDTH, _LEFT, _RIGHT, _TOP = 760, 92, 750, 20
_STRIP, _GAP = 72, 8  # heights
_LABELLED, _LETTERS = 40, 14  # steps with a label of their own; letters of it


def _drawing(view: View, alt: str) -> str:
    """Strips one above the other; the current step is framed, later ones are pale."""
    steps = len(view.labels)
    column = (_RIGHT - _LEFT) / steps
    bottom = _TOP + 4 * (_STRIP + _GAP) - _GAP
    shapes = []
    for index, (name, values) in enumerate(view.strips.items()):
        top = _TOP + index * (_STRIP + _GAP)
        shapes.append(shell.text(_LEFT - 8, top + _STRIP / 2 + 4, name, text_anchor="end"))
        shapes.append(shell.strip(_LEFT, top, _RIGHT - _LEFT, _STRIP, values, signed=name == CELL))
    here = _LEFT + view.position * column
    middle, height = (_TOP + bottom) / 2, bottom - _TOP
    pale = {"stroke": "#ffffff", "stroke_opacity": 0.6, "stroke_width": height}
    shapes.append(shell.path(f"M{here + column:.1f} {middle}H{_RIGHT}", **pale))
    shapes.append(shell.rect(here, _TOP, column, height, stroke="#000000", stroke_width=2.5))
    shapes.append(shell.text(here + column / 2, _TOP - 5, "▼", text_anchor="middle"))
    labels, height = _labels(view, column, bottom + 14)
    return shell.svg(_WIDTH, bottom + height, alt, *shapes, *labels)


def _labels(view: View, column: float, y: float) -> tuple[list[str], int]:
    """The labels of the steps and their height; of many steps, every tenth number and the current label."""
    labels = [_cut(label) for label in view.labels]
    longest = max(map(len, labels))
    if len(labels) > _LABELLED:
        tens = [str(step + 1) if (step + 1) % 10 == 0 else "" for step in range(len(labels))]
        labels = [labels[s] if s == view.position else ten for s, ten in enumerate(tens)]
    slanted = longest * 8 > column and longest > 2
    shapes = []
    for step, label in enumerate(labels):
        x = _LEFT + (step + 0.5) * column + 4 * slanted
        turn = {"transform": f"rotate(-60 {x:.1f} {y})", "text_anchor": "end"}
        look = {"font_weight": "bold"} if step == view.position else {"fill": shell.GREY}
        shapes.append(
            shell.text(x, y, label, size=12, **(turn if slanted else {"text_anchor": "middle"}), **look)
        )
    return shapes, 20 + 7 * longest * slanted


def _cut(label: str) -> str:
    return label if len(label) <= _LETTERS else label[: _LETTERS - 1] + "…"


# ---- the controls


class GateViewer(shell.Shell):
    """The controls around a View. Every callback ends in `update`, or in a message in the pane."""

    invitation = "Run this notebook to play sequences through the LSTM and to move its forget bias."

    def __init__(self, layer: Recurrent, inputs: Mapping[str, Tensor], labels: Mapping[str, Sequence[str]]):
        super().__init__()
        _check(inputs, labels)
        self.layer, self.inputs, self.labels = layer, dict(inputs), labels
        forget = [read(layer, x).forget for x in self.inputs.values()]
        self.rows = rows_of(np.concatenate(forget))  # the same for every sequence and bias

        look = {"style": shell.LABEL, "layout": widgets.Layout(width="98%")}
        self.choice = widgets.Dropdown(options=list(self.inputs), description="Sequence:", **look)
        self.bias = widgets.FloatSlider(
            0.0, min=-4.0, max=6.0, step=0.5, description="Forget bias +", readout_format="+.1f", **look
        )
        self.steps = shell.Stepper("Step:", "step", self.guarded(self.step), play=True)
        self.box = widgets.VBox([self.choice, self.bias, self.steps.row, self.message, self.pane])

        self.read(position=0)
        self.choice.observe(self.guarded(lambda _: self.read(position=0)), "value")
        self.bias.observe(self.guarded(lambda _: self.read(self.view.position)), "value")

    def read(self, position: int) -> None:
        """Read the chosen sequence with the chosen bias, and look at one of its steps."""
        name, shift = self.choice.value, self.bias.value
        gates = read(self.layer, self.inputs[name], shift)
        self.update(step_to(View(tuple(self.labels[name]), gates, self.rows, shift), position))

    def step(self, position: int) -> None:
        if position != self.view.position:
            self.update(step_to(self.view, position))

    def update(self, view: View) -> None:
        """Bring every control in line with the view."""
        self.view = view
        self.steps.show(view.position, len(view.labels))
        self.pane.value = render(view)
        self.message.value = ""

    def still(self) -> tuple[Figure, str]:
        """The whole sequence as one picture."""
        view = self.view
        title = f"Gates of an LSTM while it reads “{self.choice.value}”"
        return figures.heat_strips.build(view.strips, view.labels, signed=[CELL], title=title)


def _check(inputs: Mapping[str, Tensor], labels: Mapping[str, Sequence[str]]) -> None:
    if not inputs:
        raise ValueError("the gate viewer has no sequence to start from: give at least one input")
    for name, x in inputs.items():
        if x.ndim != 2 or not len(x):
            raise ValueError(f"input {name!r} has shape {tuple(x.shape)}; (length, input) is wanted")
        if name not in labels or len(labels[name]) != len(x):
            count = len(labels[name]) if name in labels else "no"
            raise ValueError(f"input {name!r} has {len(x)} steps, but {count} labels; give one a step")
