"""Where a token stands: sinusoidal encodings, and rotations of queries and keys."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def frequencies(width: int, base: float = 10_000.0, device: torch.device | None = None) -> Tensor:
    """The angles (radians) by which a step turns each pair of numbers: base^(-2i / width), (width / 2,).

    Raises ValueError for an odd width: the numbers are turned in pairs.
    """
    if width % 2:
        raise ValueError(f"positions turn pairs of numbers, so the width must be even; it is {width}")
    return base ** -(torch.arange(0, width, 2, device=device) / width)


def sinusoidal(
    positions: Int[Tensor, "*positions"], width: int, base: float = 10_000.0
) -> Float[Tensor, "*positions width"]:
    """The encodings of Vaswani et al. (2017, section 3.5): sine in the even columns, cosine in the odd ones.

    Raises ValueError for an odd width.
    """
    angles = positions[..., None] * frequencies(width, base, positions.device)  # (*positions, width / 2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


def rotary(
    x: Float[Tensor, "*batch length width"], positions: Int[Tensor, " length"], base: float = 10_000.0
) -> Float[Tensor, "*batch length width"]:
    """Turns each pair of neighbouring columns by an angle that grows with the position (Su et al. 2021).

    The product of a query and a key, both turned, depends on their content and the distance between them.

    Raises ValueError for an odd width.
    """
    angles = positions[:, None] * frequencies(x.shape[-1], base, x.device)  # (length, width / 2)
    wide = x.to(torch.promote_types(x.dtype, torch.float32))  # complex numbers have no half precision
    turns = torch.polar(torch.ones_like(angles), angles)  # a pair is a complex number, and this one turns it
    pairs = torch.view_as_complex(wide.unflatten(-1, (-1, 2)).contiguous())  # (*batch, length, width / 2)
    return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)
