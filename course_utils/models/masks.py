"""The one mask convention of the course: bool, True where a token is real and may be attended to."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def padding_mask(lengths: Int[Tensor, "batch"], size: int | None = None) -> Bool[Tensor, "batch length"]:
    """The mask of sentences that are padded at their end: True for the first `lengths[i]` tokens of row i.

    Args:
        lengths: the number of real tokens a row.
        size: the padded length; the longest row's by default (on the meta device it has to be given).
    """
    size = int(lengths.max()) if size is None else size
    return torch.arange(size, device=lengths.device) < lengths[:, None]  # (batch, length)


def causal_mask(length: int, device: torch.device | None = None) -> Bool[Tensor, "length length"]:
    """The mask of a model that must not see the future: row t may attend to the positions 0 ... t."""
    return prefix_mask(length, 0, device)


def prefix_mask(
    length: int, prefix: int, device: torch.device | None = None
) -> Bool[Tensor, "length length"]:
    """A causal mask whose first `prefix` positions all see each other, and are seen by all."""
    here = torch.arange(length, device=device)
    return (here[None] <= here[:, None]) | (here[None] < prefix)


def window_mask(
    length: int, window: int, device: torch.device | None = None
) -> Bool[Tensor, "length length"]:
    """A causal mask that sees the last `window` positions alone, its own included.

    Raises ValueError for a window of less than 1, in which a position would see nothing.
    """
    if window < 1:
        raise ValueError(f"a window of {window} positions shows nothing; it must be at least 1")
    here = torch.arange(length, device=device)
    distance = here[:, None] - here[None]
    return (distance >= 0) & (distance < window)
