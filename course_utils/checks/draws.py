"""What the exercises' cases are drawn with."""

import numpy as np
from numpy.random import Generator


def sizes(rng: Generator, count: int, low: int = 2, high: int = 8) -> list[int]:
    """`count` sizes, no two of them equal, so that no axis can stand in for another."""
    return [int(n) for n in rng.choice(np.arange(low, high), count, replace=False)]


def normal(rng: Generator, *shape: int, dtype: str = "float32") -> np.ndarray:
    return rng.normal(size=shape).astype(dtype)


def padded(rng: Generator, batch: int, source: int) -> np.ndarray:
    """(batch, source): True for the real words, which come first; one sentence at least is padded."""
    lengths = rng.integers(1, source + 1, size=batch)
    lengths[0] = rng.integers(1, source)
    lengths[-1] = source if batch > 1 else lengths[-1]
    return np.arange(source) < lengths[:, None]
