"""Charts of counts: bars beside each other, and bars made of shares."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from course_utils.figures.base import INK, PALETTE, plain, readable_on, shown

# Fill and hatch of the shares, in order: told apart by colour, by lightness and by pattern.
_LOOKS = ((PALETTE[0], ""), (PALETTE[5], "//"), (PALETTE[4], ".."), ("#ffffff", ""), ("#000000", ""))
_BAR = 0.45  # inches


@shown
def bars(
    counts: Mapping[str, float], *, xlabel: str, ylabel: str, title: str = "", upright: bool = False
) -> tuple[Figure, str]:
    """One bar for each name, with its number at the end, the first on top (upright: from the left).

    Raises ValueError when there is nothing to draw.
    """
    if not counts:
        raise ValueError("there is no bar to draw: give at least one count")
    names, values = list(counts), list(counts.values())
    figure, axes = _sheet(len(names), upright)
    draw = axes.bar if upright else axes.barh
    drawn = draw(names, values, color=PALETTE[0], edgecolor=INK)
    axes.bar_label(drawn, [plain(value) for value in values], padding=3)
    axes.margins(**{"y" if upright else "x": 0.12})
    _finish(axes, xlabel, ylabel, title, upright)
    said = ", ".join(f"{name}: {plain(value)}" for name, value in counts.items())
    return figure, f"{title or 'Bars'}. {(ylabel if upright else xlabel).capitalize()}. {said}."


@shown
def shares(
    table: Mapping[str, Mapping[str, int]], *, xlabel: str, ylabel: str, title: str = ""
) -> tuple[Figure, str]:
    """One bar for each row, made of its counts: {row: {part: count}}, the first on top; at most five parts.

    Raises ValueError when there is nothing to draw, too many parts, or rows of different parts.
    """
    parts: Sequence[str] = list(next(iter(table.values()), {}))
    if not parts or len(parts) > len(_LOOKS) or any(list(row) != parts for row in table.values()):
        raise ValueError(f"give every row the same one to {len(_LOOKS)} parts, not {dict(table)}")
    figure, axes = _sheet(len(table) + 1, False)
    left = [0] * len(table)
    for part, (colour, hatch) in zip(parts, _LOOKS, strict=False):
        counts = [row[part] for row in table.values()]
        drawn = axes.barh(
            list(table), counts, left=left, color=colour, hatch=hatch, edgecolor=INK, label=part, height=0.7
        )
        written = axes.bar_label(drawn, [str(count or "") for count in counts], label_type="center")
        for text in written:
            text.set(color=readable_on(colour))
            text.set_bbox({"facecolor": colour, "edgecolor": "none", "pad": 1} if text.get_text() else None)
        left = [start + count for start, count in zip(left, counts, strict=True)]
    figure.legend(loc="outside upper left", ncols=len(parts), frameon=False, handlelength=1.5)
    _finish(axes, xlabel, ylabel, title, False)
    said = " ".join(
        f"{row}: {', '.join(f'{count} {part}' for part, count in counts.items())}."
        for row, counts in table.items()
    )
    return figure, f"{title or 'Bars of shares'}. {xlabel.capitalize()}. {said}"


def _sheet(bars: int, upright: bool) -> tuple[Figure, Axes]:
    size = (7.5, 3.6) if upright else (7.5, 1.2 + _BAR * bars)
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.add_subplot()


def _finish(axes: Axes, xlabel: str, ylabel: str, title: str, upright: bool) -> None:
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.set_title(title, loc="left")
    counted, named = (axes.yaxis, axes.xaxis) if upright else (axes.xaxis, axes.yaxis)
    counted.set_major_locator(MaxNLocator(integer=True))
    named.grid(False)
    named.set_tick_params(length=0)
    if not upright:
        axes.invert_yaxis()
