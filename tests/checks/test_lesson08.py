"""Lesson 08's exercises: what their texts promise, and that answers agree with torch and with one another."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from test_solutions import cells, functions, verdict

from course_utils import checks
from course_utils.models import causal_mask, prefix_mask, scaled_dot_product, window_mask

ANSWERS = functions("08")
SIZES = {name: st.integers(1, 5) for name in ("batch", "target", "width", "value")}
tensor = torch.tensor


def close(yours, right, atol=5e-5):
    torch.testing.assert_close(yours, right, atol=atol, rtol=0)


def test_minutes_and_points_at_the_top():
    top = " ".join(cells("08")[0].source.split())
    offered = checks.exercises("08")
    assert f"{sum(e.points for e in offered)} points, about {sum(e.minutes for e in offered)} minutes" in top
    assert [e.points for e in offered] == [2, 2, 2, 1, 2, 1]


@given(**SIZES, blocks=st.lists(st.integers(1, 5), min_size=1, max_size=5), seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=40)
def test_blocks_are_torchs_attention_forward_and_backward(batch, target, width, value, blocks, seed):
    torch.manual_seed(seed)
    source = sum(blocks)
    leaves = [
        torch.randn(batch, *shape, dtype=torch.float64, requires_grad=True)
        for shape in ((target, width), (source, width), (source, value))
    ]
    mask = torch.rand(batch, source) < 0.7
    cut = zip(leaves[1].split(blocks, 1), leaves[2].split(blocks, 1), mask.split(blocks, 1), strict=True)
    yours = ANSWERS["attention_in_blocks"](leaves[0], cut)
    right, _ = scaled_dot_product(*leaves, mask[:, None])
    close(yours, right, atol=1e-12)
    upstream = torch.randn_like(right)
    for mine, courses in zip(
        torch.autograd.grad(yours, leaves, upstream),
        torch.autograd.grad(right, leaves, upstream),
        strict=True,
    ):
        close(mine, courses, atol=1e-10)


@given(**SIZES, pieces=st.lists(st.integers(1, 4), min_size=1, max_size=5), seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=40)
def test_linear_attention_is_the_same_in_pieces(batch, target, width, value, pieces, seed):
    torch.manual_seed(seed)
    query, key, values = (
        torch.randn(batch, sum(pieces), size, dtype=torch.float64) for size in (width, width, value)
    )
    zeros = (
        torch.zeros(batch, width, value, dtype=torch.float64),
        torch.zeros(batch, width, dtype=torch.float64),
    )
    whole, after = ANSWERS["linear_attention"](query, key, values, zeros)
    state, found = zeros, []
    for piece in zip(*(part.split(pieces, 1) for part in (query, key, values)), strict=True):
        output, state = ANSWERS["linear_attention"](*piece, state)
        found.append(output)
    close(torch.cat(found, 1), whole, atol=1e-10)
    for mine, right in zip(state, after, strict=True):
        close(mine, right, atol=1e-10)


@pytest.mark.parametrize("length", [1, 4, 7])
def test_the_masks_are_those_of_the_course(length):
    real = torch.ones(1, length, dtype=torch.bool)
    for kind, size, right in (
        ("both", 0, torch.ones(length, length, dtype=torch.bool)),
        ("causal", 0, causal_mask(length)),
        ("prefix", 2, prefix_mask(length, 2)),
        ("window", 3, window_mask(length, 3)),
    ):
        assert torch.equal(ANSWERS["attention_mask"](kind, real, size)[0], right), kind


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_hidden_words_come_back_out_of_source_and_target(hidden):
    tokens = torch.arange(100, 100 + len(hidden))
    source, target_in, target_out = ANSWERS["corrupt_spans"](
        tokens, tensor(hidden), torch.arange(50, 60), 0, 1
    )
    assert target_in.tolist() == [0, *target_out[:-1].tolist()]
    spans, current = {}, None
    for word in target_out[:-1].tolist():
        current = spans.setdefault(word, []) if word < 100 else (current.append(word) or current)
    restored = [w for word in source[:-1].tolist() for w in (spans[word] if word < 100 else [word])]
    assert restored == tokens.tolist() and source[-1] == target_out[-1] == 1


def test_tiny_examples():
    """The numbers in the text come out of the solutions."""
    tokens, words = tensor([[1, 3, 5, 4, 2]]), tensor([3, 4, 5])
    corrupted, labels = ANSWERS["corrupt_words"](tokens, words, 9, 0.0, torch.Generator())
    assert torch.equal(corrupted, tokens) and (labels == -100).all()

    logits = tensor([[[0.0, 0], [0, 2], [7, 7]]])
    real = torch.ones(1, 3, dtype=torch.bool)
    close(ANSWERS["causal_loss"](logits, tensor([[1, 0, 1]]), real), tensor(0.4100))
    close(F.cross_entropy(logits[0, :2], tensor([0, 1]), reduction="none"), tensor([0.6931, 0.1269]))

    parts = ANSWERS["corrupt_spans"](
        tensor([5, 6, 7, 8, 9]), tensor([False, True, True, False, True]), tensor([99, 98, 97]), 0, 1
    )
    assert [part.tolist() for part in parts] == [
        [5, 99, 8, 98, 1],
        [0, 99, 6, 7, 98, 9],
        [99, 6, 7, 98, 9, 1],
    ]

    real = torch.ones(1, 4, dtype=torch.bool)
    assert ANSWERS["attention_mask"]("window", real, 2)[0, 3].tolist() == [False, False, True, True]
    prefix = ANSWERS["attention_mask"]("prefix", real, 2)[0].tolist()
    assert prefix[0] == [True, True, False, False] and prefix[2] == [True, True, True, False]

    seen = tensor([[True]])
    blocks = [(tensor([[[0.0]]]), tensor([[[4.0]]]), seen), (tensor([[[1.0986]]]), tensor([[[8.0]]]), seen)]
    close(ANSWERS["attention_in_blocks"](tensor([[[1.0]]]), iter(blocks)), tensor([[[7.0]]]), atol=5e-4)

    output, (memory, total) = ANSWERS["linear_attention"](
        torch.zeros(1, 2, 1), tensor([[[0.0], [1]]]), tensor([[[10.0], [40]]]),
        (torch.zeros(1, 1, 1), torch.zeros(1, 1)),
    )  # fmt: skip
    close(output, tensor([[[10.0], [30]]]))
    close(memory, tensor([[[90.0]]]))
    close(total, tensor([[3.0]]))


def test_a_corruption_that_draws_otherwise_is_told_what_is_wrong():
    """No draw of this answer equals that of a named mistake, and yet it is recognised."""

    def corrupt(tokens, words, mask_id, rate, generator):
        order = torch.randperm(tokens.numel(), generator=generator)
        chosen = torch.zeros(tokens.numel(), dtype=torch.bool)
        chosen[order[: int(rate * len(order))]] = True  # special words too
        chosen = chosen.view_as(tokens)
        return tokens.masked_fill(chosen, mask_id), tokens.masked_fill(~chosen, -100)

    first, second = verdict(checks.find("08.1"), corrupt).parts
    assert first.finding.mistake == "special words are chosen"
    assert second.finding.mistake == "every chosen word is masked"


def test_an_answer_that_keeps_the_blocks_is_found_out():
    def attend(query, blocks):
        key, value, mask = (torch.cat(parts, 1) for parts in zip(*blocks, strict=True))
        return scaled_dot_product(query, key, value, mask[:, None])[0]

    first, second = verdict(checks.find("08.5"), attend).parts
    assert first.finding.mistake == "the blocks are collected" and second.points == 1
