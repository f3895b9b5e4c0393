"""The text of lesson 07's exercises, and their references against torch's own modules."""

import pytest
import torch
import torch.nn.functional as F
from test_solutions import cells, functions
from torch import nn

from course_utils import checks
from course_utils.checks import lesson07
from course_utils.checks.engine import draw

SEEDS = range(5)


def test_minutes_and_points_at_the_top():
    top = " ".join(cells("07")[0].source.split())
    offered = checks.exercises("07")
    assert f"{sum(e.points for e in offered)} points, about {sum(e.minutes for e in offered)} minutes" in top
    assert sum(e.points for e in offered) == 10


def test_tiny_examples():
    """The numbers in the text come out of the solutions."""
    answers = functions("07")
    tensor, close = torch.tensor, torch.testing.assert_close
    x, twice = tensor([[[1.0, 3]]]), [lambda x: 2 * x]
    plain = torch.ones(2, 2), torch.zeros(2, 2)
    for pre in (False, True):
        found = answers["residual_stack"](x, twice, *plain, pre)
        close(found, tensor([[[-1.0, 1]]]), atol=1e-5, rtol=0)
    close(x + 2 * F.layer_norm(x, (2,)), tensor([[[-1.0, 5]]]), atol=2e-5, rtol=0)

    def mean(asking, asked, mask):
        mask = mask.expand(len(asking), 1, asking.shape[1], asked.shape[1])[:, 0].float()
        return mask @ asked / mask.sum(-1, keepdim=True)

    found = answers["decoder_layer"](
        tensor([[[1.0], [3]]]), tensor([[[10.0], [20], [99]]]), tensor([[True, True, False]]),
        mean, mean, lambda x: 0 * x, [lambda x: x] * 3,
    )  # fmt: skip
    close(found, tensor([[[17.0], [20]]]))

    loss = answers["smoothed_loss"](tensor([[[2.0, 0, 0]]]), tensor([[0]]), 2, 0.3)
    close(loss, tensor(0.6395), atol=5e-5, rtol=0)
    rates = [answers["warmup_rate"](step, 1.0, 100) for step in (50, 100, 400, 10_000)]
    assert rates == pytest.approx([0.5, 1, 0.5, 0.1])

    read, asked, _, mask = answers["training_step"](
        tensor([[3, 3]]), tensor([[1, 7, 8, 2], [1, 7, 2, 0]]), 9, 0
    )
    assert read.tolist() == [[1, 7, 8], [1, 7, 2]] and asked.tolist() == [[7, 8, 2], [7, 2, 0]]
    assert mask[0, 0].tolist() == [[True, False, False], [True, True, False], [True, True, True]]

    weights = torch.zeros(5, 1), *[torch.ones(1, 1)] * 3
    cache = (torch.zeros(1, 1, 0, 1),) * 2
    found, cache = answers["cached_attention"](tensor([[[0.0]]]), cache, *weights, 1)
    close(found, tensor([[[0.0]]]))
    found, cache = answers["cached_attention"](tensor([[[2.0]]]), cache, *weights, 1)
    close(found, tensor([[[1.9640]]]), atol=5e-5, rtol=0)
    assert [part.flatten().tolist() for part in cache] == [[0, 2], [0, 2]]


# --- the references, which the checks judge by, against torch


def cases(exercise):
    return [case for seed in SEEDS for part in draw(exercise, seed) for case in part]


def doubles(case, *names):
    return [torch.tensor(case[name]).double() for name in names]


def test_residual_stack_is_torchs_layer_norm():
    for case in cases(lesson07.RESIDUAL_STACK):
        x, matrices, gains, biases = doubles(case, "x", "matrices", "gains", "biases")

        def norm(i, x, gains=gains, biases=biases):
            return F.layer_norm(x, x.shape[-1:], gains[i], biases[i])

        for i, matrix in enumerate(matrices):
            x = x + norm(i, x) @ matrix.T if case["pre"] else norm(i, x + x @ matrix.T)
        x = norm(-1, x) if case["pre"] else x
        expected = lesson07.RESIDUAL_STACK.reference(case)["states"]
        torch.testing.assert_close(torch.tensor(expected), x)


@torch.no_grad()
def test_decoder_layer_is_torchs():
    for case in cases(lesson07.DECODER_LAYER):
        _, target, width = case["x"].shape
        layer = nn.TransformerDecoderLayer(
            width, case["heads"], len(case["widen"][0]) + 2, dropout=0.0, batch_first=True, norm_first=True
        ).double()
        for name, own in (("own_matrices", layer.self_attn), ("cross_matrices", layer.multihead_attn)):
            q, k, v, out = torch.tensor(case[name]).double()
            own.in_proj_weight.copy_(torch.cat([q, k, v]))
            own.out_proj.weight.copy_(out)
            own.in_proj_bias.zero_()
            own.out_proj.bias.zero_()
        widen, narrow, gains, biases = doubles(case, "widen", "narrow", "gains", "biases")
        layer.linear1.weight.copy_(widen)
        layer.linear2.weight.copy_(narrow)
        layer.linear1.bias.zero_()
        layer.linear2.bias.zero_()
        for norm, gain, bias in zip((layer.norm1, layer.norm2, layer.norm3), gains, biases, strict=True):
            norm.weight.copy_(gain)
            norm.bias.copy_(bias)
        hidden = ~torch.ones(target, target, dtype=torch.bool).tril()
        x, read = doubles(case, "x", "encoder_states")
        found = layer(x, read, tgt_mask=hidden, memory_key_padding_mask=~torch.tensor(case["source_mask"]))
        expected = lesson07.DECODER_LAYER.reference(case)["states"]
        torch.testing.assert_close(torch.tensor(expected), found)


def test_smoothed_loss_is_torchs():
    for case in cases(lesson07.SMOOTHED_LOSS):
        logits = torch.tensor(case["logits"]).double().requires_grad_()
        loss = F.cross_entropy(
            logits.flatten(0, 1),
            torch.tensor(case["target"]).flatten(),
            ignore_index=case["pad"],
            label_smoothing=case["epsilon"],
        )
        expected = lesson07.SMOOTHED_LOSS.reference(case)
        torch.testing.assert_close(torch.tensor(expected["loss"]), loss.detach())
        if "upstream" in case:
            (gradient,) = torch.autograd.grad(loss * float(case["upstream"]), logits)
            torch.testing.assert_close(
                torch.tensor(expected["gradient of logits"]), gradient, atol=1e-7, rtol=0
            )


def test_warmup_is_the_papers_schedule():
    """Up to a constant: the rate is d^-0.5 min(s^-0.5, s w^-1.5) (equation 3)."""
    for case in cases(lesson07.WARMUP_RATE):
        rates, warmup = lesson07.WARMUP_RATE.reference(case)["rates"], case["warmup"]
        for step, rate in zip(case["steps"], rates, strict=True):
            paper = min(step**-0.5, step * warmup**-1.5) if step else 0.0
            assert rate == pytest.approx(case["peak"] * warmup**0.5 * paper)


@torch.no_grad()
def test_cached_attention_is_one_causal_attention_over_all():
    for case in cases(lesson07.CACHED_ATTENTION):
        x, places, *weights = doubles(case, "x", "places", "W_q", "W_k", "W_v")
        width = x.shape[-1]
        torchs = nn.MultiheadAttention(width, case["heads"], bias=False, batch_first=True).double()
        torchs.in_proj_weight.copy_(torch.cat(weights))
        torchs.out_proj.weight.copy_(torch.eye(width))
        x = x + places[: x.shape[1]]
        hidden = ~torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        found, _ = torchs(x, x, x, attn_mask=hidden)
        expected = lesson07.CACHED_ATTENTION.reference(case)
        outputs = [torch.tensor(value) for name, value in expected.items() if name.startswith("output")]
        assert len(outputs) == len(case["chunks"])
        torch.testing.assert_close(torch.cat(outputs, dim=1), found)


@pytest.mark.parametrize("seed", SEEDS)
def test_cases_are_what_they_are_for(seed):
    """Padding on both sides, one <pad> alone, equal numbers, a word that is the other side's pad."""
    left = draw(lesson07.TRAINING_STEP, seed)[0][2]
    assert (left["target"][:, 0] == left["target_pad"]).any()
    for case in draw(lesson07.TRAINING_STEP, seed)[0]:
        assert (case["target"] == case["source_pad"]).any() and (case["source"] == case["target_pad"]).any()
    one = draw(lesson07.SMOOTHED_LOSS, seed)[1][0]
    assert (one["target"] == one["pad"]).sum() == 1
    for part in draw(lesson07.RESIDUAL_STACK, seed):
        assert (part[2]["x"][:, 1] == part[2]["x"][0, 1, 0]).all()
    future, padding, *_ = draw(lesson07.DECODER_LAYER, seed)[1]
    assert (future["x"][0] != future["x"][1]).any() and (future["x"][0, :2] == future["x"][1, :2]).all()
    assert (padding["encoder_states"][0] != padding["encoder_states"][1]).any()
