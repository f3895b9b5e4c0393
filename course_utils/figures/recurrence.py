"""A recurrent network unrolled in time: the way forward, the way back, and where the way back is cut."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from course_utils.figures.base import PALETTE, arrow, box, canvas, plain, shade, shown

MAX_STEPS = 12  # more boxes than this cannot be read in one picture
_BACK = PALETTE[1]  # the way back, in every picture


@shown
def unrolled_diagram(
    inputs: Sequence[str], *, norms: Sequence[float] | None = None, loss: str = "loss"
) -> tuple[Figure, str]:
    """One recurrent cell drawn once for each step, and, where `norms` is given, the gradient's way back.

    inputs: what is read at each step. norms: the gradient norm at every state, h_0 first: one more than
    inputs. The arrows back are as thick as the norms are large.

    Raises ValueError for no input, for more than 12, and for norms that do not fit.
    """
    steps = len(inputs)
    if not 1 <= steps <= MAX_STEPS:
        raise ValueError(f"{steps} steps cannot be drawn; give 1 to {MAX_STEPS}")
    if norms is not None and len(norms) != steps + 1:
        raise ValueError(f"{steps} inputs have {steps + 1} states, but {len(norms)} norms are given")
    figure, axes = canvas(1.35 * steps + 3.1, 3.5 if norms is None else 4.1)
    base = 0.0 if norms is None else 0.6
    places = [0.2 + 1.35 * t for t in range(steps + 1)]
    for t, x in enumerate(places):
        box(axes, x, base + 1.5, 0.75, 0.7, f"$h_{{{t}}}$", colour=shade(0.12 if t else 0.0))
        if t:
            axes.text(x + 0.375, base + 0.35, inputs[t - 1], ha="center", va="center", fontsize=12)
            arrow(axes, (x + 0.375, base + 0.6), (x + 0.375, base + 1.45), 1.5)
            arrow(axes, (x - 0.57, base + 1.95), (x - 0.03, base + 1.95), 1.5)
    axes.text(places[1] + 0.48, base + 1.0, "$W_x$", ha="left", va="center", fontsize=12)
    axes.text(places[1] - 0.3, base + 2.2, "$W_h$", ha="center", va="center", fontsize=12)
    end = places[-1] + 0.75
    arrow(axes, (end + 0.05, base + 1.95), (end + 0.55, base + 1.95), 1.5)
    box(axes, end + 0.6, base + 1.5, 1.3, 0.7, loss, colour="#fde3cf", size=12)
    _same_weights(axes, places[1], end, base + 2.6)
    return figure, _unrolled_alt(inputs, norms, loss, _way_back(axes, places, norms, base))


def _same_weights(axes: Axes, left: float, right: float, height: float) -> None:
    axes.plot(
        [left, left, right, right], [height, height + 0.12, height + 0.12, height], color="#777777", lw=1.2
    )
    text = "the same $W_x$, $W_h$ and $b$ at every step"
    axes.text((left + right) / 2, height + 0.22, text, ha="center", va="bottom", fontsize=12, color="#555555")


def _way_back(axes: Axes, places: Sequence[float], norms: Sequence[float] | None, base: float) -> list[str]:
    """Arrows from each state to the one before, and the norms as text; returns the norms as written."""
    if norms is None:
        return []
    written = [plain(float(norm)) for norm in norms]
    largest = max(norms) or 1
    for t, x in enumerate(places):
        axes.text(x + 0.375, 0.25, written[t], ha="center", va="center", fontsize=11, color=_BACK)
        if t:
            arrow(
                axes,
                (x - 0.03, base + 1.68),
                (x - 0.57, base + 1.68),
                0.4 + 9 * norms[t - 1] / largest,
                _BACK,
            )
    end = places[-1] + 0.75
    arrow(axes, (end + 0.55, base + 1.68), (end + 0.05, base + 1.68), 0.4 + 9 * norms[-1] / largest, _BACK)
    axes.text(end + 0.1, 0.25, "gradient norm", ha="left", va="center", fontsize=11, color=_BACK)
    return written


def _unrolled_alt(inputs: Sequence[str], norms, loss: str, written: list[str]) -> str:
    alt = (
        f"Diagram of a recurrent network unrolled over {len(inputs)} steps: boxes h_0 to h_{len(inputs)} in "
        "a row; arrows to the next box go through W_h, arrows from the inputs below through W_x, the same "
        f"weights at every step; the last state leads to the {loss}."
    )
    if norms is not None:
        alt += (
            " Arrows back from the end, as thick as the gradient is large: the norms from h_0 to "
            f"h_{len(inputs)} are {', '.join(written)}."
        )
    return alt


@shown
def windows_diagram(length: int, window: int) -> tuple[Figure, str]:
    """Truncated backpropagation: the state flows through all steps, the gradient through the last `window`.

    Raises ValueError unless 1 <= window < length <= 12.
    """
    if not 1 <= window < length <= MAX_STEPS:
        raise ValueError(
            f"a window of {window} in {length} steps cannot be drawn: 1 <= window < length <= 12"
        )
    figure, axes = canvas(1.0 * length + 2.1, 3.4)
    places = np.arange(length) + 0.15
    first = length - window  # the first step inside the window
    for t, x in enumerate(places):
        inside = t >= first
        box(axes, x, 1.3, 0.6, 0.6, f"$h_{{{t + 1}}}$", colour=shade(0.2) if inside else "#eeeeee", size=12)
        if t:
            arrow(axes, (x - 0.37, 1.72), (x - 0.03, 1.72), 1.2)
        if t > first:
            arrow(axes, (x - 0.03, 1.48), (x - 0.37, 1.48), 2.5, _BACK)
    cut = places[first] - 0.2
    axes.plot([cut, cut], [0.75, 2.35], color=_BACK, lw=2, ls="--")
    axes.text(cut, 0.6, "the gradient stops here", ha="center", va="top", fontsize=12, color=_BACK)
    axes.text(places[0] + 0.33, 1.17, "the symbol", ha="center", va="top", fontsize=12)
    end = places[-1] + 0.6
    arrow(axes, (end + 0.03, 1.72), (end + 0.35, 1.72), 1.2)
    arrow(axes, (end + 0.35, 1.48), (end + 0.03, 1.48), 2.5, _BACK)
    box(axes, end + 0.4, 1.3, 0.95, 0.6, "loss", colour="#fde3cf", size=12)
    bow = FancyArrowPatch(
        (places[0] + 0.3, 1.95), (end + 0.85, 1.95), connectionstyle="arc3,rad=-0.22",
        arrowstyle="-|>", mutation_scale=14, color="#555555", lw=1.4, ls=":",
    )  # fmt: skip
    axes.add_patch(bow)
    axes.text((places[0] + end) / 2, 3.2, "what has to be learned", ha="center", va="center", fontsize=12)
    alt = (
        f"Diagram of truncated backpropagation: {length} states in a row, the loss at the end. Arrows "
        f"forward run through all of them, arrows back only through the last {window}; a dashed line marks "
        "where the gradient stops. A dotted bow from the first state, which read the symbol, crosses it."
    )
    return figure, alt
