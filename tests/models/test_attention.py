import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from course_utils.models import AdditiveScore, Attention, masked_softmax

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
sizes = st.integers(1, 6)
seeds = st.integers(0, 2**32 - 1)


def softmax_by_hand(scores, mask):
    """Row by row, over the real positions only."""
    rows = []
    for row, real in zip(scores.flatten(0, -2), mask.flatten(0, -2), strict=True):
        chosen = row[real]
        exponentials = (chosen - chosen.max()).exp() if len(chosen) else chosen
        rows.append((row * 0).masked_scatter(real, exponentials / exponentials.sum()))
    return torch.stack(rows).view_as(scores)


@given(seeds, sizes, sizes, sizes, st.floats(0, 1))
@settings(deadline=None, max_examples=30)
def test_masked_softmax_is_a_softmax_over_the_real_positions(seed, batch, target, source, share):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(batch, target, source, generator=generator, dtype=torch.float64).mul_(5)
    mask = torch.rand(batch, target, source, generator=generator) < share
    upstream = torch.randn(scores.shape, generator=generator, dtype=torch.float64)
    results = []
    for softmax in (masked_softmax, softmax_by_hand):
        leaf = scores.clone().requires_grad_()
        weights = softmax(leaf, mask)
        (weights * upstream).sum().backward()
        results.append((weights.detach(), leaf.grad))
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-12)
    assert (results[0][0][~mask] == 0).all()
    sums = results[0][0].sum(-1)
    torch.testing.assert_close(sums, mask.any(-1).double())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", ["ordinary", "largest", "lowest", "equal"])
def test_every_dtype_and_extreme_scores(dtype, scale):
    generator = torch.Generator().manual_seed(1)
    factor = {"ordinary": 1, "largest": torch.finfo(dtype).max / 8, "lowest": 1, "equal": 0}[scale]
    scores = (torch.randn(4, 3, 7, generator=generator, dtype=torch.float64).clamp(-4, 4) * factor).to(dtype)
    if scale == "lowest":
        scores = torch.full_like(scores, torch.finfo(dtype).min)
    mask = torch.rand(4, 3, 7, generator=generator) < 0.6
    mask[:, :, 0] = True
    mask[1, 2] = False
    scores[~mask] = torch.finfo(dtype).max  # what is masked must not win, however large
    scores.requires_grad_()
    weights = masked_softmax(scores, mask)
    weights[..., 0].sum().backward()
    assert weights.dtype == dtype
    assert weights.isfinite().all() and scores.grad.isfinite().all()
    assert (weights[~mask] == 0).all() and (scores.grad[~mask] == 0).all()
    wanted = mask.any(-1).double()
    torch.testing.assert_close(weights.double().sum(-1), wanted, rtol=0, atol=8 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), float("-inf")])
def test_what_stands_on_padding_does_not_matter(garbage):
    scores = torch.randn(2, 5, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[True, True, False, True, False], [False] * 5])
    clean = masked_softmax(scores, mask)
    dirty = scores.masked_fill(~mask, garbage).requires_grad_()
    weights = masked_softmax(dirty, mask)
    torch.testing.assert_close(weights, clean)
    (weights**2).sum().backward()
    assert dirty.grad.isfinite().all()


def test_the_mask_broadcasts():
    scores = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([True, False, True, True])
    full = masked_softmax(scores, mask.expand(2, 3, 4))
    for shape in [(4,), (1, 4), (1, 1, 4)]:
        torch.testing.assert_close(masked_softmax(scores, mask.view(shape)), full)
    rows = torch.tensor([[True, True, True, False], [False] * 4])
    torch.testing.assert_close(
        masked_softmax(scores, rows[:, None]), masked_softmax(scores, rows[:, None].expand(2, 3, 4))
    )
    torch.testing.assert_close(masked_softmax(scores), torch.softmax(scores, -1))


@given(seeds, sizes, sizes, sizes, sizes, sizes, sizes)
@settings(deadline=None, max_examples=25)
def test_additive_score_is_the_papers(seed, batch, target, source, query_width, key_width, width):
    """e_tj = v^T tanh(W_a s_t + U_a h_j), one pair at a time, forward and backward."""
    torch.manual_seed(seed)
    score = AdditiveScore(query_width, key_width, width).double()
    inputs = [
        torch.randn(batch, target, query_width).double(),
        torch.randn(batch, source, key_width).double(),
    ]
    upstream = torch.randn(batch, target, source).double()
    results = []
    for by_hand in (False, True):
        queries, states = (x.clone().requires_grad_() for x in inputs)
        if by_hand:
            rows = [
                score.v @ torch.tanh(score.query.weight @ queries[b, t] + score.key.weight @ states[b, j])
                for b in range(batch)
                for t in range(target)
                for j in range(source)
            ]
            scores = torch.stack(rows).view(batch, target, source)
        else:
            scores = score(queries, score.project_keys(states))
        leaves = [queries, states, *score.parameters()]
        results.append((scores.detach(), torch.autograd.grad((scores * upstream).sum(), leaves)))
    torch.testing.assert_close(results[0], results[1], rtol=1e-11, atol=1e-12)


def test_attention_averages_the_values_that_may_be_seen():
    torch.manual_seed(0)
    attention = Attention(AdditiveScore(5, 6, 4))
    query, states, values = torch.randn(3, 2, 5), torch.randn(3, 7, 6), torch.randn(3, 7, 8)
    mask = torch.arange(7) < torch.tensor([7, 4, 0])[:, None]
    keys = attention.score.project_keys(states)
    context, weights = attention(query, keys, values, mask)
    torch.testing.assert_close(weights, masked_softmax(attention.score(query, keys), mask[:, None]))
    torch.testing.assert_close(context, torch.einsum("bts,bsv->btv", weights, values))
    assert (context[2] == 0).all() and (weights[1, :, 4:] == 0).all()


@pytest.mark.parametrize("width", [1, 3])
def test_another_score_fits(width):
    class Dot(nn.Module):
        def project_keys(self, encoder_states):
            return encoder_states

        def forward(self, query, keys):
            return query @ keys.mT

    query, states = torch.randn(2, 3, width), torch.randn(2, 4, width)
    attention = Attention(Dot())
    mask = torch.ones(2, 4, dtype=torch.bool)
    _, weights = attention(query, attention.score.project_keys(states), states, mask)
    torch.testing.assert_close(weights, torch.softmax(query @ states.mT, -1))


def test_on_meta():
    with torch.device("meta"):
        attention = Attention(AdditiveScore(5, 6, 4))
        query, states = torch.randn(3, 2, 5, requires_grad=True), torch.randn(3, 7, 6, requires_grad=True)
        mask = torch.ones(3, 7, dtype=torch.bool)
    context, _ = attention(query, attention.score.project_keys(states), states, mask)
    context.sum().backward()
    assert context.is_meta and query.grad.is_meta and states.grad.is_meta
