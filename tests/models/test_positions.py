import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_utils.models import rotary, sinusoidal


def test_the_formula_of_the_paper():
    encoding = sinusoidal(torch.arange(7), 8)
    for position in range(7):
        for i in range(4):
            angle = position / 10_000 ** (2 * i / 8)
            assert encoding[position, 2 * i] == pytest.approx(math.sin(angle), abs=1e-6)
            assert encoding[position, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-6)


@given(shift=st.integers(0, 50), seed=st.integers(0, 99))
def test_turned_products_depend_on_the_distance_alone(shift, seed):
    generator = torch.Generator().manual_seed(seed)
    query, key = torch.randn(2, 3, 4, 6, generator=generator, dtype=torch.float64)
    here = torch.arange(4)
    near = rotary(query, here) @ rotary(key, here).mT
    far = rotary(query, here + shift) @ rotary(key, here + shift).mT
    torch.testing.assert_close(near, far, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(rotary(query, here).norm(dim=-1), query.norm(dim=-1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(rotary(query, here)[:, 0], query[:, 0])


@pytest.mark.parametrize(
    "position", [lambda: sinusoidal(torch.arange(3), 5), lambda: rotary(torch.ones(3, 5), torch.arange(3))]
)
def test_an_odd_width_is_refused(position):
    with pytest.raises(ValueError, match="even; it is 5"):
        position()
