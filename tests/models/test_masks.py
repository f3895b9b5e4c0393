import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_utils.models import causal_mask, padding_mask, prefix_mask, window_mask


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 3))
def test_a_row_is_true_for_its_length_and_then_false(lengths, extra):
    size = max(lengths) + extra
    mask = padding_mask(torch.tensor(lengths), size)
    assert mask.tolist() == [[True] * n + [False] * (size - n) for n in lengths]
    assert torch.equal(padding_mask(torch.tensor(lengths)), mask[:, : max(lengths)])


def test_on_meta():
    assert padding_mask(torch.ones(3, dtype=torch.long, device="meta"), 5).shape == (3, 5)


def test_causal_prefix_and_window():
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    assert torch.equal(causal_mask(5), causal)
    assert torch.equal(prefix_mask(5, 0), causal)
    prefix = prefix_mask(5, 3)
    assert prefix[:, :3].all() and torch.equal(prefix[:, 3:], causal[:, 3:])
    assert prefix_mask(4, 4).all()
    assert torch.equal(window_mask(5, 2), causal & ~causal.tril(-2))
    assert torch.equal(window_mask(5, 9), causal)
    with pytest.raises(ValueError, match="at least 1"):
        window_mask(5, 0)
