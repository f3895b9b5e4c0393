"""Charts of curves: numbers against numbers, and quality against length."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from course_utils.figures.base import PALETTE, plain, shown

_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 3)))


@shown
def lines(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    xlabel: str,
    ylabel: str,
    title: str = "",
    xscale: str = "linear",
    yscale: str = "linear",
) -> tuple[Figure, str]:
    """Curves, each with its own x values: {name: (x, y)}. Labels carry the units.

    xscale and yscale are "linear" or "log".

    Raises ValueError when there is nothing to draw or x and y of a series differ in length.
    """
    series = {name: (np.asarray(x, float), np.asarray(y, float)) for name, (x, y) in series.items()}
    if not series:
        raise ValueError("there is no curve to draw: give at least one series")
    for name, (x, y) in series.items():
        if x.shape != y.shape or x.ndim != 1 or not len(x):
            raise ValueError(
                f"series {name!r}: x has shape {x.shape} and y {y.shape}; give two lists of one length"
            )
    figure, axes = _axes(xlabel, ylabel, title, xscale, yscale)
    for index, (x, y) in enumerate(series.values()):
        axes.plot(x, y, markevery=max(1, len(x) // 10), **_look(index))
    _plain_log_ticks(axes)
    _label_ends(axes, series)
    return figure, _lines_alt(series, xlabel, ylabel, title, xscale, yscale)


@shown
def curve(
    x: Sequence[float], series: Mapping[str, Sequence[float]], *, xlabel: str, ylabel: str, **options
) -> tuple[Figure, str]:
    """Curves over the same x values: {name: y}. The options are those of `lines`."""
    return lines.build({name: (x, y) for name, y in series.items()}, xlabel=xlabel, ylabel=ylabel, **options)


@shown
def quality_by_length(
    series: Mapping[str, Sequence[tuple[float, float, float, float]]],
    *,
    xlabel: str = "length of the source sentence (tokens)",
    ylabel: str = "BLEU (0 to 100)",
    interval: str = "95% interval",
    title: str = "",
) -> tuple[Figure, str]:
    """Quality against sentence length, each point with its interval.

    series: {name: points}; a point is (length, score, low end, high end). Points with a NaN are left out.

    Raises ValueError when an interval ends below its start, or a series has no point.
    """
    table = {name: np.array([*points], float) for name, points in series.items()}
    for name, points in table.items():
        table[name] = points = points.reshape(-1, 4)[np.isfinite(points).reshape(-1, 4).all(1)]
        if not len(points):
            raise ValueError(f"series {name!r} has no point to draw")
        for x, _, low, high in points[points[:, 2] > points[:, 3]]:
            raise ValueError(
                f"series {name!r} at length {x:g}: the interval {low:g} to {high:g} is upside down"
            )
    drawn = {name: (points[:, 0], points[:, 1]) for name, points in table.items()}
    figure, axes = _axes(xlabel, ylabel, title)
    for index, (name, (x, y)) in enumerate(drawn.items()):
        look, low, high = _look(index), table[name][:, 2], table[name][:, 3]
        axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
        axes.vlines(x, low, high, color=look["color"], linewidth=1.4)
        axes.plot([*x, *x], [*low, *high], "_", color=look["color"], markersize=10)
        axes.plot(x, y, **look)
    axes.set_ylim(bottom=0)
    _label_ends(axes, drawn)
    axes.text(1, -0.2, f"bars and bands: {interval}", transform=axes.transAxes, ha="right", va="top", size=10)
    alt = _lines_alt(drawn, xlabel, ylabel, title)
    for name, points in table.items():
        widest = points[np.argmax(points[:, 3] - points[:, 2])]
        low, high = plain(widest[2]), plain(widest[3])
        alt += f" The widest {interval} of {name}: {low} to {high}, at {plain(widest[0])}."
    return figure, alt


def _axes(xlabel, ylabel, title, xscale="linear", yscale="linear") -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=xlabel, ylabel=ylabel, xscale=xscale, yscale=yscale)
    axes.set_title(title, loc="left")
    return figure, axes


def _plain_log_ticks(axes: Axes) -> None:
    """0.3 rather than 3 x 10^-1 on a log axis, and more of them where the range is short."""
    axes.get_xlim(), axes.get_ylim()  # settles the ranges, which matplotlib leaves open until it must know
    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        if axis.get_scale() == "log":
            axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
            axis.set_minor_formatter(NullFormatter())


def _look(index: int) -> dict:
    return {
        "color": PALETTE[index % len(PALETTE)],
        "marker": _MARKERS[index % len(_MARKERS)],
        "linestyle": _DASHES[index % len(_DASHES)],
    }


def _label_ends(axes: Axes, series: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """Write each name beside the end of its curve, moved apart where two would overlap."""
    axes.get_xlim(), axes.get_ylim()
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = []
    for index, (name, (x, y)) in enumerate(series.items()):
        finite = np.flatnonzero(np.isfinite(y))
        last = finite[-1] if len(finite) else 0
        height = to_axes.transform((x[last], y[last]))[1] if len(finite) else 0.5
        ends.append((float(height), index, name))
    heights = _spread([height for height, _, _ in sorted(ends)], gap=0.09)
    for height, (_, index, name) in zip(heights, sorted(ends), strict=True):
        axes.text(
            1.02,
            height,
            name,
            transform=axes.transAxes,
            va="center",
            color=_look(index)["color"],
            fontweight="bold",
        )


def _spread(heights: list[float], gap: float) -> list[float]:
    """Rising heights, moved so that neighbours are `gap` apart and all lie within 0 to 1."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + gap) if placed else max(height, 0.02))
    ceiling = 0.98
    for index in reversed(range(len(placed))):
        placed[index] = min(placed[index], ceiling)
        ceiling = placed[index] - gap
    return placed


def _lines_alt(series, xlabel, ylabel, title, xscale="linear", yscale="linear") -> str:
    """What a chart of curves shows: axes and ranges, each curve's course, and which lies above which."""
    scale = {"linear": "", "log": " on a log scale"}
    every_x = np.concatenate([x for x, _ in series.values()])
    parts = [
        (f"{title}. " if title else "") + f"Line chart of {ylabel}{scale.get(yscale, '')} against {xlabel}"
        f"{scale.get(xscale, '')}, from {plain(every_x.min())} to {plain(every_x.max())}."
    ]
    parts += [f"{name}: {_course(x, y)}." for name, (x, y) in series.items()]
    if len(series) <= 3:
        parts += [_comparison(*pair, series) for pair in combinations(series, 2)]
    return " ".join(part for part in parts if part)


def _course(x: np.ndarray, y: np.ndarray) -> str:
    if len(x) <= 8:
        return ", ".join(f"{plain(b)} at {plain(a)}" for a, b in zip(x, y, strict=True))
    if not np.isfinite(y).any():
        return "no finite value"
    low, high = np.nanargmin(y), np.nanargmax(y)
    return (
        f"from {plain(y[0])} at {plain(x[0])} to {plain(y[-1])} at {plain(x[-1])}; "
        f"lowest {plain(y[low])} at {plain(x[low])}, highest {plain(y[high])} at {plain(x[high])}"
    )


def _comparison(first: str, second: str, series) -> str:
    shared, at_first, at_second = np.intersect1d(series[first][0], series[second][0], return_indices=True)
    if not len(shared):
        return ""
    gap = series[first][1][at_first] - series[second][1][at_second]
    above, below = int((gap > 0).sum()), int((gap < 0).sum())
    widest = np.nanargmax(abs(gap)) if np.isfinite(gap).any() else 0
    if above == below == 0:
        return f"{first} and {second} are equal at all {len(shared)} shared points."
    upper, lower, count = (first, second, above) if above >= below else (second, first, below)
    return (
        f"{upper} lies above {lower} at {count} of {len(shared)} shared points; "
        f"the widest gap is {plain(abs(gap[widest]))}, at {plain(shared[widest])}."
    )
