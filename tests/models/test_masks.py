import torch
from hypothesis import given
from hypothesis import strategies as st

from course_utils.models import padding_mask


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 3))
def test_a_row_is_true_for_its_length_and_then_false(lengths, extra):
    size = max(lengths) + extra
    mask = padding_mask(torch.tensor(lengths), size)
    assert mask.tolist() == [[True] * n + [False] * (size - n) for n in lengths]
    assert torch.equal(padding_mask(torch.tensor(lengths)), mask[:, : max(lengths)])


def test_on_meta():
    assert padding_mask(torch.ones(3, dtype=torch.long, device="meta"), 5).shape == (3, 5)
