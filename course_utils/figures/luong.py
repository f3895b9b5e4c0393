"""Luong's decoder in pictures: the order of its operations, input feeding, and windows on the source."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from course_utils.figures.base import PALETTE, arrow, box, canvas, shade, shown

_STATE, _LOOK, _WORD = "#fde3cf", shade(0.2), "#eeeeee"  # what holds a state, what looks, what is given
_FED = PALETTE[1]


@shown
def order_diagram() -> tuple[Figure, str]:
    """One step of two decoders side by side: Bahdanau looks and then steps, Luong steps and then looks."""
    figure, axes = canvas(11.4, 6.6)
    bahdanau = [
        ("given: $s_{t-1}$,  $E y_{t-1}$", _WORD),
        ("1  look with $s_{t-1}$:  scores, weights, $c_t$", _LOOK),
        ("2  step:  $s_t = f([E y_{t-1}; c_t],\\ s_{t-1})$", _STATE),
        ("3  predict from $s_t$, $c_t$, $y_{t-1}$", "#ffffff"),
    ]
    luong = [
        ("given: $s_{t-1}$,  $E y_{t-1}$,  $\\tilde{h}_{t-1}$", _WORD),
        ("1  step:  $s_t = f([E y_{t-1}; \\tilde{h}_{t-1}],\\ s_{t-1})$", _STATE),
        ("2  look with $s_t$:  scores, weights, $c_t$", _LOOK),
        ("3  join:  $\\tilde{h}_t = \\tanh(W_c\\,[c_t; s_t])$", _LOOK),
        ("4  predict from $\\tilde{h}_t$", "#ffffff"),
    ]
    for left, title, rows in ((0.3, "Bahdanau et al. (2015)", bahdanau), (5.8, "Luong et al. (2015)", luong)):
        axes.text(left + 2.3, 6.3, title, ha="center", va="center", fontsize=13, fontweight="bold")
        for row, (text, colour) in enumerate(rows):
            bottom = 0.3 + 1.2 * row
            box(axes, left, bottom, 4.6, 0.75, text, colour=colour, size=12.5)
            if row:
                arrow(axes, (left + 2.3, bottom - 0.42), (left + 2.3, bottom - 0.03), 2)
    _curve(axes, (10.45, 4.3), (10.45, 0.7), -0.35)
    axes.text(11.28, 2.5, "input feeding: in step t + 1", rotation=90, ha="center", va="center", color=_FED)
    alt = (
        "Diagram of one decoder step in two orders, from bottom to top. Bahdanau: given s(t-1) and the word "
        "before, 1 look with s(t-1), which gives the context c(t); 2 step to s(t) with the word and c(t); 3 "
        "predict from s(t), c(t) and the word. Luong: given s(t-1), the word and the attentional state "
        "before, 1 step to s(t); 2 look with s(t), which gives c(t); 3 join c(t) and s(t) in the attentional "
        "state, tanh of W_c times both; 4 predict from it. An arrow leads from the attentional state back to "
        "what the next step is given: input feeding."
    )
    return figure, alt


def _curve(axes: Axes, start, end, bend: float) -> None:
    axes.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=18, connectionstyle=f"arc3,rad={bend}",
            color=_FED, lw=2, linestyle="--",
        )
    )  # fmt: skip


@shown
def feeding_diagram(words: Sequence[str]) -> tuple[Figure, str]:
    """A decoder over several steps without input feeding (above) and with it (below).

    words: what is written; the first three are drawn. Raises ValueError for fewer than two.
    """
    words = list(words)[:3]
    if len(words) < 2:
        raise ValueError(f"{len(words)} words show no step to the next; give at least 2")
    read, wide, left = ["<bos>", *words[:-1]], 2.6, 2.3
    figure, axes = canvas(left + wide * len(words) + 0.1, 7.0)
    for base, name, fed in ((3.6, "without feeding", False), (0.1, "with feeding", True)):
        axes.text(0.1, base + 1.6, name, va="center", fontsize=12, fontweight="bold")
        for t, word in enumerate(words):
            x = left + wide * t + 0.6
            axes.text(x, base + 0.2, read[t], ha="center", va="center", fontsize=12)
            arrow(axes, (x, base + 0.42), (x, base + 0.77), 1.5, "#999999")
            box(axes, x - 0.45, base + 0.8, 0.9, 0.6, f"$s_{t + 1}$", colour=_STATE)
            arrow(axes, (x, base + 1.42), (x, base + 1.82), 1.5, "#999999")
            box(axes, x - 0.6, base + 1.85, 1.2, 0.6, f"look, $\\tilde{{h}}_{t + 1}$", colour=_LOOK, size=12)
            arrow(axes, (x, base + 2.47), (x, base + 2.83), 1.5, "#999999")
            axes.text(x, base + 3.02, word, ha="center", va="center", fontsize=12)
            if t + 1 < len(words):
                arrow(axes, (x + 0.47, base + 1.1), (x + wide - 0.47, base + 1.1), 1.5, "#999999")
                if fed:
                    _curve(axes, (x + 0.62, base + 2.1), (x + wide - 0.4, base + 1.42), 0.1)
    axes.plot([0.1, left + wide * len(words)], [3.5, 3.5], color="#cccccc", lw=1)
    alt = (
        f"Diagram of a decoder that writes {' '.join(words)}, twice. Above, without feeding: each state "
        "leads to the next, each state looks, and no look leads anywhere but to its word, so that all looks "
        "can be made at once. Below, with feeding: a dashed arrow leads from each look to the next state, so "
        "that each step has to wait for the look before it."
    )
    return figure, alt


@shown
def windows_on_source(
    weights: Mapping[str, Sequence[float]],
    source: Sequence[str],
    *,
    centres: Mapping[str, float],
    reach: int,
) -> tuple[Figure, str]:
    """The weights of one target word under several kinds of attention, as bars over the source words.

    weights: name -> (source,). centres: name -> the middle of the window, for those that have one; its
    window of `reach` words to each side is shaded.

    Raises ValueError where weights and source words differ in number.
    """
    figure = Figure(
        figsize=(max(6.0, 0.75 * len(source) + 1.5), 1.75 * len(weights) + 0.6), layout="constrained"
    )
    panels = figure.subplots(len(weights), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    said = []
    for axes, (name, row) in zip(panels, weights.items(), strict=True):
        if len(row) != len(source):
            raise ValueError(f"{name}: {len(row)} weights do not fit {len(source)} source words")
        bars = axes.bar(range(len(row)), row, color=PALETTE[0], width=0.7)
        axes.bar_label(bars, [f"{w:.2f}" if w >= 0.005 else "" for w in row], padding=2, fontsize=10)
        text = f"{name}: the weights sum to {np.sum(row):.2f}"
        if name in centres:
            middle = centres[name]
            axes.axvspan(middle - reach, middle + reach, color=_FED, alpha=0.12, zorder=0)
            axes.axvline(middle, color=_FED, ls="--", zorder=0)
            text += f", window around {middle:.1f}"
        axes.set_title(text, loc="left", fontsize=12)
        axes.grid(axis="x", visible=False)
        axes.set(ylim=(0, 1.2 * max(map(max, weights.values()))), xlim=(-0.7, len(source) - 0.3))
        most = int(np.argmax(row))
        said.append(f"{text}, the largest {row[most]:.2f} on “{source[most]}”")
    panels[-1].set_xticks(range(len(source)), [f"{word}\n{j}" for j, word in enumerate(source)])
    panels[-1].set_xlabel("source word and its place")
    figure.supylabel("attention weight", fontsize=12)
    alt = f"Bar charts of the weights of one target word over {len(source)} source words. {'. '.join(said)}."
    return figure, alt + " Windows are shaded, their middles dashed."
