"""One step of a gated cell in pictures: what is kept, what comes in, what is shown."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from course_utils.figures.base import INK, PALETTE, arrow, box, canvas, shade, shown

MEMORY = PALETTE[1]  # the path that keeps what was written
ROAD, BUS, ROW = 4.0, 0.7, 1.7  # heights: of the memory's path, of what all gates read, of the gates
RADIUS = 0.19  # of a sign in its circle


@shown
def lstm_diagram() -> tuple[Figure, str]:
    """One step of an LSTM: the path of the cell, and the gates beside it."""
    figure, axes = canvas(10.5, 4.7)
    _memory(axes, "$c_{t-1}$", "$c_t$")
    _bus(axes, 8.0)
    gates = {2.3: "$f$ · forget", 4.2: "$i$ · input", 5.9: "$g$ · new", 8.0: "$o$ · output"}
    for x, name in gates.items():
        _gate(axes, x, name, "tanh" if "new" in name else "σ")
    _up(axes, 2.3, ROW + 0.4, ROAD)
    _sign(axes, 2.3, ROAD, "×")
    _up(axes, 4.2, ROW + 0.4, 3.0)
    _turn(axes, (5.9, ROW + 0.4), (5.9, 3.0), (4.2, 3.0))
    _up(axes, 4.2, 3.0, ROAD)
    _sign(axes, 4.2, 3.0, "×")
    _sign(axes, 4.2, ROAD, "+")
    axes.plot([9.3, 9.3], [ROAD, 3.35], color=INK, lw=1.4)
    box(axes, 8.9, 2.85, 0.8, 0.5, "tanh", colour="#ffffff", size=11)
    arrow(axes, (9.3, 2.85), (9.3, ROW + RADIUS), 1.2, INK)
    arrow(axes, (8.7, ROW), (9.3 - RADIUS, ROW), 1.2, INK)
    _sign(axes, 9.3, ROW, "×")
    arrow(axes, (9.3 + RADIUS, ROW), (9.95, ROW), 1.2, INK)
    axes.text(10.0, ROW, "$h_t$", va="center", fontsize=14)
    axes.text(6.5, ROAD + 0.2, "the cell's path: one × and one +", color=MEMORY, ha="center", weight="bold")
    alt = (
        "Diagram of one step of an LSTM. A thick line runs straight from the old cell to the new one; on it "
        "lie only a multiplication by the forget gate f and an addition of the input gate i times the new "
        "content g. All four parts read x_t and h_(t-1), f, i and o through a sigmoid, g through a tanh. The "
        "new cell, through a tanh and times the output gate o, gives h_t."
    )
    return figure, alt


@shown
def gru_diagram() -> tuple[Figure, str]:
    """One step of a GRU (reset-after): the path of the state, and the gates beside it."""
    figure, axes = canvas(10.5, 4.7)
    _memory(axes, "$h_{t-1}$", "$h_t$")
    _bus(axes, 4.6)
    _gate(axes, 2.3, "$z$ · update", "σ")
    _gate(axes, 4.6, "$r$ · reset", "σ")
    _up(axes, 2.3, ROW + 0.4, ROAD)
    _sign(axes, 2.3, ROAD, "×")
    arrow(axes, (5.3, ROW), (5.95 - RADIUS, ROW), 1.2, INK)
    _sign(axes, 5.95, ROW, "×")
    arrow(axes, (5.95, BUS + 0.22), (5.95, ROW - RADIUS), 1.2, INK)
    axes.text(5.95, BUS, "$U_n h_{t-1} + b'_n$", ha="center", va="center", fontsize=12)
    arrow(axes, (5.95 + RADIUS, ROW), (7.0, ROW), 1.2, INK)
    box(axes, 7.0, ROW - 0.4, 1.4, 0.8, "$n$ · new\ntanh", colour=shade(0.12), size=11)
    arrow(axes, (7.7, BUS + 0.22), (7.7, ROW - 0.4), 1.2, INK)
    axes.text(7.7, BUS, "$W_n x_t + b_n$", ha="center", va="center", fontsize=12)
    axes.plot([2.3, 4.4], [3.0, 3.0], color=INK, lw=1.4)
    box(axes, 4.4, 2.75, 0.9, 0.5, "$1 - z$", colour="#ffffff", size=11)
    arrow(axes, (5.3, 3.0), (7.7 - RADIUS, 3.0), 1.2, INK)
    _up(axes, 7.7, ROW + 0.4, 3.0)
    _up(axes, 7.7, 3.0, ROAD)
    _sign(axes, 7.7, 3.0, "×")
    _sign(axes, 7.7, ROAD, "+")
    axes.text(5.0, ROAD + 0.2, "the state's own path", color=MEMORY, ha="center", weight="bold")
    alt = (
        "Diagram of one step of a GRU. A thick line runs straight from the old state to the new one; on it "
        "lie a multiplication by the update gate z and an addition of 1 - z times the new content n. The "
        "gates z and r read x_t and h_(t-1) through a sigmoid. The reset gate r multiplies what comes out of "
        "the recurrent product, bias included, before it meets the input's share inside the tanh of n."
    )
    return figure, alt


def _memory(axes: Axes, old: str, new: str) -> None:
    arrow(axes, (0.9, ROAD), (9.9, ROAD), 4, MEMORY)
    axes.text(0.8, ROAD, old, ha="right", va="center", fontsize=14)
    axes.text(10.0, ROAD, new, va="center", fontsize=14)


def _bus(axes: Axes, end: float) -> None:
    """What all gates read, from the left up to the last of them."""
    axes.plot([1.25, end], [BUS, BUS], color=INK, lw=1.4)
    axes.text(1.15, BUS, "$x_t, h_{t-1}$", ha="right", va="center", fontsize=14)


def _gate(axes: Axes, x: float, name: str, function: str) -> None:
    arrow(axes, (x, BUS), (x, ROW - 0.4), 1.2, INK)
    box(axes, x - 0.7, ROW - 0.4, 1.4, 0.8, f"{name}\n{function}", colour=shade(0.12), size=11)


def _up(axes: Axes, x: float, low: float, high: float) -> None:
    arrow(axes, (x, low), (x, high - RADIUS), 1.2, INK)


def _turn(axes: Axes, start, corner, end) -> None:
    """Up to a corner, then left to a sign."""
    axes.plot([start[0], corner[0]], [start[1], corner[1]], color=INK, lw=1.4)
    arrow(axes, corner, (end[0] + RADIUS, end[1]), 1.2, INK)


def _sign(axes: Axes, x: float, y: float, text: str) -> None:
    axes.add_patch(Circle((x, y), RADIUS, facecolor="#ffffff", edgecolor=INK, lw=1.4, zorder=5))
    axes.text(x, y, text, ha="center", va="center_baseline", fontsize=14, zorder=6)
