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
