"""How long things take: medians of several runs, compared in turn so that a busy moment meets all alike."""

import statistics
import time
from collections.abc import Callable, Mapping

import torch


def seconds(function: Callable[[], object], *, repeats: int = 5) -> float:
    """The median time of one call, in seconds, after one call that is not counted."""
    return compare({"": function}, repeats=repeats)[""]


def compare(functions: Mapping[str, Callable[[], object]], *, repeats: int = 5) -> dict[str, float]:
    """The median time of one call of each function, in seconds.

    All are called once in each round, after a first round that is not counted. On a GPU a call counts until
    its work is done.

    Raises ValueError for fewer than one repeat.
    """
    if repeats < 1:
        raise ValueError(f"{repeats} repeats measure nothing; give at least 1")
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats + 1):
        for name, function in functions.items():
            _wait()
            started = time.perf_counter()
            function()
            _wait()
            times[name].append(time.perf_counter() - started)
    return {name: statistics.median(taken[1:]) for name, taken in times.items()}


def _wait() -> None:
    """Until the GPU has done what it was told."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    elif torch.backends.mps.is_available():
        torch.mps.synchronize()
