"""Heat strips: what every unit of a layer does at every step, a row a unit and a column a step."""

import io
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from PIL import Image

from course_utils.figures.base import INK, PALETTE, plain, shown

Strip = Float[np.ndarray, "units steps"]

# Below 0 vermilion, above 0 blue; a dot on each cell below 0 says so without colour.
_SIGNED = LinearSegmentedColormap.from_list("signed", [PALETTE[1], "#ffffff", PALETTE[0]])
_LABELLED = 32  # more step labels than this cannot be read


@shown
def heat_strips(
    panels: Mapping[str, Strip], labels: Sequence[str], *, signed: Collection[str] = (), title: str = ""
) -> tuple[Figure, str]:
    """Heat strips one above the other, a row for each unit, a column for each step.

    panels: {name: values (units, steps)}; values lie within 0 and 1, where darker is more. signed: names of
    the panels whose values may be negative: blue above 0, orange with a dot below. labels: one a step.

    Raises ValueError when there is nothing to draw, a panel does not fit the labels, or a value of an
    unsigned panel lies outside 0 to 1.
    """
    panels = {name: np.asarray(values, float) for name, values in panels.items()}
    _check(panels, labels, signed)
    units = max(len(values) for values in panels.values())
    steps = len(labels)
    size = (
        float(np.clip(0.3 * steps + 1.6, 6, 11)),
        len(panels) * float(np.clip(0.06 * units, 0.4, 1.3)) + 1.4,
    )
    figure = Figure(figsize=size, layout="constrained")
    all_axes = figure.subplots(len(panels), sharex=True, squeeze=False).ravel()
    for axes, (name, values) in zip(all_axes, panels.items(), strict=True):
        _draw(axes, name, values, name in signed)
    last = all_axes[-1]
    if steps <= _LABELLED:
        last.set_xticks(range(steps), labels, rotation=60, ha="right", rotation_mode="anchor", fontsize=10)
    last.set_xlabel("\n".join(["step (each row is a unit)", *strips_key(panels, signed)]), fontsize=10.5)
    if title:
        figure.suptitle(title, fontsize=13, fontweight="bold")
    return figure, (f"{title}. " if title else "") + strips_alt(panels, labels)


def strips_alt(panels: Mapping[str, Strip], labels: Sequence[str]) -> str:
    """What heat strips show: their size, and where each is highest and lowest on average."""
    units = max(len(values) for values in panels.values())
    said = [f"Heat strips of {units} units over {len(labels)} steps, “{labels[0]}” to “{labels[-1]}”."]
    for name, values in panels.items():
        mean = np.asarray(values).mean(axis=0)
        high, low = int(mean.argmax()), int(mean.argmin())
        said.append(
            f"{name}: {plain(values.min())} to {plain(values.max())}; the mean over units is highest at step "
            f"{high + 1} “{labels[high]}” ({mean[high]:.2f}) and lowest at step {low + 1} “{labels[low]}” "
            f"({mean[low]:.2f})."
        )
    return " ".join(said)


def strips_key(panels: Mapping[str, Strip], signed: Collection[str] = ()) -> list[str]:
    """How to read the colours, a sentence for each kind of strip."""
    key = ["Blue strips: white is 0, dark is 1."] * bool(set(panels) - set(signed))
    for name in signed:
        end = plain(_end(panels[name]))
        key.append(f"{name}: blue above 0, orange with a dot below, from −{end} to {end}.")
    return key


def strip_colours(values: Strip, signed: bool = False) -> UInt8[np.ndarray, "units steps 3"]:
    """The colour of every cell: from 0 to 1, or signed from minus to plus the end of its scale."""
    values = np.asarray(values, float)
    if signed:
        return _SIGNED((values / _end(values) + 1) / 2, bytes=True)[..., :3]
    return colormaps["Blues"](values, bytes=True)[..., :3]


def strip_png(values: Strip, signed: bool = False) -> bytes:
    """A strip as a PNG of one pixel a cell, to be stretched over the place it is shown in."""
    file = io.BytesIO()
    Image.fromarray(strip_colours(values, signed)).save(file, "PNG")
    return file.getvalue()


def _end(values: Strip) -> float:
    """Where a signed scale ends: at the largest absolute value, at 1 if all are smaller."""
    return max(1.0, float(np.abs(values).max()))


def _check(panels: Mapping[str, Strip], labels: Sequence[str], signed: Collection[str]) -> None:
    if not panels or not len(labels):
        raise ValueError("there is no strip to draw: give at least one panel and one step")
    for name, values in panels.items():
        if values.ndim != 2 or values.shape[1] != len(labels) or not len(values):
            raise ValueError(
                f"panel {name!r} has shape {values.shape}; (units, steps) for {len(labels)} labels is wanted"
            )
        if name not in signed and not (values.min() >= 0 and values.max() <= 1):
            raise ValueError(
                f"panel {name!r} has values from {plain(values.min())} to {plain(values.max())}, outside 0 "
                "to 1; name it in `signed`"
            )


def _draw(axes: Axes, name: str, values: Strip, signed: bool) -> None:
    axes.imshow(strip_colours(values, signed), aspect="auto", interpolation="nearest")
    if signed:
        units, steps = np.nonzero(values < 0)
        axes.plot(steps, units, ".", color=INK, markersize=2)
    axes.set_yticks([])
    axes.tick_params(bottom=False)
    axes.grid(False)
    axes.spines[:].set_visible(True)
    axes.set_ylabel(name, rotation=0, ha="right", va="center")
