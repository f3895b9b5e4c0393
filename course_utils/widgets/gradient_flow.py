"""The gradient explorer: turn a recurrent layer's settings and see how its gradient fades or explodes by lag.

Plain functions (`flow_of`, `render`) make what is shown; `GradientExplorer` ties them to the controls.
"""

import math
from dataclasses import dataclass

import ipywidgets as widgets
import numpy as np
import torch
from matplotlib.figure import Figure

from course_utils import figures
from course_utils.figures.base import plain
from course_utils.models.recurrent import Kind, Recurrent, orthogonal_
from course_utils.probes import GradientFlow, gradient_flow
from course_utils.widgets import shell

NAMES: dict[Kind, str] = {"rnn": "tanh RNN", "relu": "ReLU RNN", "gru": "GRU", "lstm": "LSTM"}
GATED = ("gru", "lstm")
SKIP = 5  # lags next to the loss that the fit leaves out: an LSTM's gradient first has to reach the cell
WIDTH, BATCH, INPUTS = 64, 8, 8
_ACROSS, _DOWN = "lag (steps back from the end)", "gradient norm"

Series = dict[str, tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Settings:
    """What the reader can turn.

    Attributes:
        kind: of the layer, as in `Recurrent`.
        radius: the spectral radius of the recurrent matrix; of each gate's where there are gates.
        length: of the sequence, in steps.
        inputs: the standard deviation of the projected input; a ReLU's gradient does not depend on it.
        gate_bias: of the gate that keeps the old state (an LSTM's forget gate, a GRU's update gate).
    """

    kind: Kind = "rnn"
    radius: float = 0.9
    length: int = 60
    inputs: float = 0.3
    gate_bias: float = 0.0


def gradient_explorer() -> None:
    """Show the explorer: choose a cell and its settings, see the gradient norm by lag at once.

    Where no widget can run, a picture of the first settings is seen instead.
    """
    GradientExplorer().show()


# ---- what is shown


def flow_of(settings: Settings) -> GradientFlow:
    """The gradient flow of a random layer with these settings; the same settings give the same numbers.

    Recurrent matrices are multiples of orthogonal ones. In double precision, so that no norm underflows.
    """
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):  # the weights that the layer draws itself are replaced
        layer = Recurrent(settings.kind, INPUTS, WIDTH, fused=False).double()
    orthogonal_(layer.rnn, settings.radius, generator)
    with torch.no_grad():
        layer.rnn.weight_ih_l0.normal_(0, INPUTS**-0.5, generator=generator)
        layer.rnn.bias_ih_l0.zero_()
        layer.rnn.bias_hh_l0.zero_()
        if settings.kind in GATED:  # in both, the second gate keeps the old state
            layer.rnn.bias_ih_l0.split(WIDTH)[1].fill_(settings.gate_bias)
    x = torch.randn(BATCH, settings.length, INPUTS, generator=generator, dtype=torch.float64)
    return gradient_flow(layer, x * (1 if settings.kind == "relu" else settings.inputs), skip=SKIP)


def series_of(flow: GradientFlow) -> Series:
    """The measured norms by lag, the fitted line and, where there is one, the predicted line."""
    lags = np.flatnonzero(flow.norms > 0)  # a norm of 0 has no place on a log axis
    series = {"measured": (lags, flow.norms[lags])}
    fitted = lags[lags >= SKIP]
    if math.isfinite(flow.slope):
        level = np.log(flow.norms[fitted]).mean()  # a line of least squares goes through the means
        series["fitted"] = (fitted, np.exp(level + flow.slope * (fitted - fitted.mean())))
    if flow.predicted is not None and math.isfinite(flow.predicted):
        series["predicted"] = (lags, flow.norms[0] * np.exp(flow.predicted * lags))
    return series


def render(settings: Settings, flow: GradientFlow) -> str:
    """The pane as HTML: the curve on a log axis with its lines, and what it says in words."""
    return shell.pane(
        "Gradient norm by lag",
        _chart(series_of(flow), settings.length, describe(settings, flow)),
        shell.status(summary(settings, flow)),
        shell.note(_note(settings)),
    )


def picture(settings: Settings, flow: GradientFlow) -> tuple[Figure, str]:
    """The same curve as a figure, and its alt text."""
    labels = {"xlabel": _ACROSS, "ylabel": _DOWN, "title": _name(settings)}
    figure, _ = figures.lines.build(series_of(flow), yscale="log", **labels)
    return figure, describe(settings, flow)


def describe(settings: Settings, flow: GradientFlow) -> str:
    """The alt text of the curve: its axes and ends, and the slopes."""
    lines = " and ".join(list(series_of(flow))[1:])
    drawn = f", with the {lines} line{'s' * (' ' in lines)}" if lines else ""
    return (
        f"Chart of the {_DOWN} on a log axis against the {_ACROSS}, from {plain(flow.norms[0])} at lag 0 to "
        f"{plain(flow.norms[-1])} at lag {len(flow.norms) - 1}{drawn}. {summary(settings, flow)}"
    )


def summary(settings: Settings, flow: GradientFlow) -> str:
    """How fast the gradient fades or grows, measured and predicted."""
    said = [f"{_name(settings)}: {_pace(flow.slope)}"]
    left = flow.norms[-1] / flow.norms[0]
    said.append(f"{settings.length} steps back, the norm is {plain(left)} times that at the end.")
    if flow.predicted is None:
        keep = 1 / (1 + math.exp(-settings.gate_bias))
        said.append(f"Its bias alone opens the gate that keeps the old state to {shell.percent(keep)}.")
    else:
        name = "ReLU" if settings.kind == "relu" else "tanh"
        predicted = _factor(flow.predicted)
        said.append(f"Predicted from the spectral radius and the {name} derivatives: {predicted} a step.")
    return " ".join(said)


def _name(settings: Settings) -> str:
    return f"{NAMES[settings.kind]}, recurrent scale {settings.radius:.2f}"


def _pace(slope: float) -> str:
    if not math.isfinite(slope):
        return "no gradient comes back, so there is no slope to fit."
    pace = f"on average each step back multiplies the gradient norm by {_factor(slope)}"
    if abs(slope) < 0.005:
        return f"{pace}: it hardly changes."
    change = "halves" if slope < 0 else "doubles"
    return f"{pace}: it {change} every {math.log(2) / abs(slope):.1f} steps."


def _factor(slope: float) -> str:
    sign = "−" if slope < 0 else ""
    return f"{math.exp(slope):.3f} (slope {sign}{abs(slope):.3f})"


def _note(settings: Settings) -> str:
    said = [
        f"Width {WIDTH}, mean over {BATCH} random sequences. The recurrent matrix (with gates: each of them) "
        f"is the recurrent scale times an orthogonal one. The line is fitted from lag {SKIP} on."
    ]
    if settings.kind == "relu":
        said.append("The size of the input changes nothing here: a ReLU's derivative is 0 or 1.")
    if settings.kind in GATED:
        said.append("With gates, the spectral radius and one derivative no longer predict the slope.")
    return " ".join(said)


# ---- the chart

_SIZE = (720, 340)
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 704, 40, 290
_LOOKS = {  # a colour and a shape each
    "measured": {"stroke": figures.PALETTE[0], "stroke_width": 6, "stroke_linecap": "round"},
    "fitted": {"stroke": figures.PALETTE[1], "stroke_width": 2.5},
    "predicted": {"stroke": figures.PALETTE[6], "stroke_width": 2.5, "stroke_dasharray": "3 6"},
}


def _chart(series: Series, last: int, alt: str) -> str:
    """Dots for what is measured, a solid line for the fit, a dotted one for the prediction, by lag."""
    logs = np.log10(np.concatenate([y for _, y in series.values()]))
    low, high = min(math.floor(logs.min()), -2), max(math.ceil(logs.max()), 1)

    def across(lag: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * lag / last

    def down(log: float) -> float:
        return _TOP + (_BOTTOM - _TOP) * (high - log) / (high - low)

    shapes = []
    for log in _ticks(low, high):
        shapes.append(shell.path(f"M{_LEFT} {down(log):.1f}H{_RIGHT}", stroke="#dddddd"))
        shapes.append(shell.text(_LEFT - 8, down(log) + 4, _power(log), text_anchor="end"))
    for lag in _ticks(0, last):
        shapes.append(shell.text(across(lag), _BOTTOM + 18, str(lag), text_anchor="middle"))
    shapes.append(shell.path(f"M{_LEFT} {_TOP}V{_BOTTOM}H{_RIGHT}", stroke="#222222"))
    middle = (_LEFT + _RIGHT) / 2
    shapes.append(shell.text(middle, _SIZE[1] - 12, _ACROSS, text_anchor="middle"))
    shapes.append(shell.text(_LEFT - 62, 20, _DOWN))
    for index, (name, (x, y)) in enumerate(series.items()):
        dots = name == "measured"
        places = [(across(lag), down(log)) for lag, log in zip(x, np.log10(y), strict=True)]
        shapes.append(shell.path(_points(places, dots), **_LOOKS[name]))
        left = 250 + 150 * index
        sample = [(left + step, 16) for step in (0, 15, 30)]
        shapes.append(shell.path(_points(sample, dots), **_LOOKS[name]))
        shapes.append(shell.text(left + 40, 20, name))
    return shell.svg(*_SIZE, alt, *shapes)


def _points(places: list[tuple[float, float]], dots: bool) -> str:
    """A path through places, or a dot at each (a line of no length with round ends)."""
    if dots:
        return "".join(f"M{x:.1f} {y:.1f}h0" for x, y in places)
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def _ticks(low: int, high: int) -> range:
    """Whole numbers within low to high, at most eight, at steps of 1, 2 or 5 times a power of ten."""
    step = next(s * 10**n for n in range(9) for s in (1, 2, 5) if (high - low) / (s * 10**n) <= 7)
    return range(-(-low // step) * step, high + 1, step)


def _power(exponent: int) -> str:
    if abs(exponent) <= 3:
        return plain(10.0**exponent)
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


# ---- the controls


class GradientExplorer(shell.Shell):
    """A control for each of the Settings; a change of any shows the new curve."""

    invitation = "Run this notebook to choose the cell and to turn its settings."

    def __init__(self):
        super().__init__()
        first = Settings()
        look = {"style": shell.LABEL, "layout": widgets.Layout(width="98%")}

        def slider(name: str, description: str, low: float, high: float, step: float, **options):
            kind = widgets.IntSlider if isinstance(step, int) else widgets.FloatSlider
            value = getattr(first, name)
            return kind(value, min=low, max=high, step=step, description=description, **look, **options)

        cells = [(name, kind) for kind, name in NAMES.items()]
        self.controls = {
            # Buttons: JupyterLab takes the keys of a closed list for its own commands.
            "kind": widgets.ToggleButtons(
                options=cells,
                value=first.kind,
                description="Cell:",
                style={**shell.LABEL, "button_width": "8em"},
            ),
            "radius": slider("radius", "Recurrent scale:", 0.2, 2.0, 0.05),
            "length": slider("length", "Length (steps):", 20, 100, 5),
            "inputs": slider("inputs", "Input scale:", 0.0, 3.0, 0.1, readout_format=".1f"),
            "gate_bias": slider("gate_bias", "Gate bias:", -2.0, 6.0, 0.5, readout_format=".1f"),
        }
        self.box = widgets.VBox([*self.controls.values(), self.message, self.pane])
        self.update()
        for control in self.controls.values():
            control.observe(self.guarded(lambda _: self.update()), "value")

    def update(self) -> None:
        """Measure with the settings of the controls, and show it."""
        self.settings = Settings(**{name: control.value for name, control in self.controls.items()})
        self.controls["inputs"].disabled = self.settings.kind == "relu"
        self.controls["gate_bias"].disabled = self.settings.kind not in GATED
        self.flow = flow_of(self.settings)
        self.pane.value = render(self.settings, self.flow)
        self.message.value = ""

    def still(self) -> tuple[Figure, str]:
        return picture(self.settings, self.flow)
