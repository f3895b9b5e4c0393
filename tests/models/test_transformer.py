"""The Transformer's parts against torch's own, and what no change may move."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from course_utils import decoding
from course_utils.models import (
    Block,
    MultiHeadAttention,
    Stack,
    Transformer,
    causal_mask,
    scaled_dot_product,
)

DOUBLE = {"rtol": 1e-12, "atol": 1e-12}
SMALL = {"width": 16, "heads": 2, "inner": 24, "layers": 2}


def copy_attention(torchs: nn.MultiheadAttention, ours: MultiHeadAttention) -> None:
    query, key, value = torchs.in_proj_weight.chunk(3)
    ours.query.weight.copy_(query)
    ours.key_value.weight.copy_(torch.cat([key, value]))
    query, key, value = torchs.in_proj_bias.chunk(3)
    ours.query.bias.copy_(query)
    ours.key_value.bias.copy_(torch.cat([key, value]))
    ours.output.load_state_dict(torchs.out_proj.state_dict())


@torch.no_grad()
def randomise(module: nn.Module) -> None:
    """No bias of 0 and no norm weight of 1, behind which a mistake could hide."""
    for parameter in module.parameters():
        parameter.normal_(std=0.5)


def same_gradients(outputs, leaves, upstream) -> None:
    found = [
        torch.autograd.grad((out * upstream).sum(), leaf) for out, leaf in zip(outputs, leaves, strict=True)
    ]
    torch.testing.assert_close(found[0], found[1], **DOUBLE)


@given(
    batch=st.integers(1, 4),
    source=st.integers(1, 7),
    target=st.integers(1, 6),
    seed=st.integers(0, 2**32 - 1),
)
@settings(deadline=None, max_examples=25)
def test_scaled_dot_product_equals_torchs(batch, source, target, seed):
    torch.manual_seed(seed)
    query, key = torch.randn(batch, 3, target, 5).double(), torch.randn(batch, 3, source, 5).double()
    value, mask = torch.randn(batch, 3, source, 2).double(), torch.rand(batch, 1, target, source) < 0.6
    leaves = [[x.clone().requires_grad_() for x in (query, key, value)] for _ in range(2)]
    ours, weights = scaled_dot_product(*leaves[0], mask)
    torchs = nn.functional.scaled_dot_product_attention(*leaves[1], mask)
    torch.testing.assert_close(ours, torchs, **DOUBLE)
    assert (ours[~mask.any(-1, keepdim=True).expand_as(ours)] == 0).all()
    torch.testing.assert_close(weights.sum(-1), mask.any(-1).double().expand(batch, 3, target))
    same_gradients((ours, torchs), leaves, torch.randn(ours.shape).double())


@given(
    heads=st.integers(1, 4), own=st.integers(1, 5), batch=st.integers(1, 4), source=st.integers(1, 7),
    target=st.integers(1, 6), seed=st.integers(0, 2**32 - 1), with_weights=st.booleans(),
)  # fmt: skip
@settings(deadline=None, max_examples=25)
def test_heads_equal_torchs(heads, own, batch, source, target, seed, with_weights):
    torch.manual_seed(seed)
    torchs = nn.MultiheadAttention(heads * own, heads, batch_first=True).double()
    ours = MultiHeadAttention(heads * own, heads).double()
    randomise(torchs)
    with torch.no_grad():
        copy_attention(torchs, ours)
    x, other = (
        torch.randn(batch, target, heads * own).double(),
        torch.randn(batch, source, heads * own).double(),
    )
    mask = torch.rand(batch, source) < 0.6
    mask[:, 0] = True  # torch's own gives NaN to an empty row
    leaves = [[v.clone().requires_grad_() for v in (x, other)] for _ in range(2)]
    found = ours(leaves[0][0], ours.remember(leaves[0][1]), mask[:, None, None], with_weights=with_weights)
    expected, weights = torchs(
        leaves[1][0], leaves[1][1], leaves[1][1], key_padding_mask=~mask, average_attn_weights=False
    )
    torch.testing.assert_close(found.output, expected, **DOUBLE)
    assert (found.weights is None) == (not with_weights)
    if with_weights:
        torch.testing.assert_close(found.weights, weights, **DOUBLE)
    same_gradients((found.output, expected), leaves, torch.randn(x.shape).double())


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("cross", [False, True])
def test_a_block_equals_torchs_layer(norm, cross):
    torch.manual_seed(0)
    kind = nn.TransformerDecoderLayer if cross else nn.TransformerEncoderLayer
    options = {"dropout": 0.0, "batch_first": True, "norm_first": norm == "pre"}
    torchs = kind(12, 3, 20, **options).double()
    ours = Block(12, 3, 20, cross=cross, norm=norm).double()
    randomise(torchs)
    with torch.no_grad():
        copy_attention(torchs.self_attn, ours.attention)
        if cross:
            copy_attention(torchs.multihead_attn, ours.cross)
    for i, own in enumerate(ours.norms):
        own.load_state_dict(getattr(torchs, f"norm{i + 1}").state_dict())
    ours.feed_forward[0].load_state_dict(torchs.linear1.state_dict())
    ours.feed_forward[2].load_state_dict(torchs.linear2.state_dict())

    x, other, mask = torch.randn(2, 5, 12).double(), torch.randn(2, 7, 12).double(), causal_mask(5)
    leaves = [[v.clone().requires_grad_() for v in ((x, other) if cross else (x,))] for _ in range(2)]
    if cross:
        found, _, _ = ours(leaves[0][0], mask, memory=ours.cross.remember(leaves[0][1]))
        expected = torchs(*leaves[1], tgt_mask=~mask)
    else:
        found, _, _ = ours(leaves[0][0], mask)
        expected = torchs(leaves[1][0], src_mask=~mask)
    torch.testing.assert_close(found, expected, **DOUBLE)
    same_gradients((found, expected), leaves, torch.randn(x.shape).double())


@pytest.mark.parametrize("rotary", [False, True])
def test_shared_keys_are_those_of_heads_with_equal_keys(rotary):
    torch.manual_seed(0)
    shared = MultiHeadAttention(12, 6, key_heads=2, rotary=rotary)
    whole = MultiHeadAttention(12, 6, rotary=rotary)
    with torch.no_grad():
        whole.query.load_state_dict(shared.query.state_dict())
        whole.output.load_state_dict(shared.output.state_dict())
        for name in ("weight", "bias"):
            rows = getattr(shared.key_value, name).unflatten(0, (2, 2, 2))  # key or value, head, own
            getattr(whole.key_value, name).copy_(rows.repeat_interleave(3, dim=1).flatten(0, 2))
    x = torch.randn(2, 5, 12)
    memory = shared.remember(x)
    assert memory[0].shape == (2, 2, 5, 2)
    torch.testing.assert_close(shared(x, memory).output, whole(x, whole.remember(x)).output)


@pytest.mark.parametrize("sizes", [(10, 3, None), (12, 4, 3)])
def test_heads_that_do_not_divide_are_refused(sizes):
    with pytest.raises(ValueError, match="must divide"):
        MultiHeadAttention(sizes[0], sizes[1], key_heads=sizes[2])


POSITIONS = ["sinusoidal", "learned", "rotary"]


def model(positions="sinusoidal", norm="pre", dtype=torch.float64) -> Transformer:
    torch.manual_seed(0)
    made = Transformer(11, 9, positions=positions, norm=norm, **SMALL).to(dtype)
    randomise(made)
    return made.eval()


def sentences() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    mask = torch.arange(6) < torch.tensor([[6], [2], [4]])
    return torch.randint(11, (3, 6)), mask, torch.randint(9, (3, 5))


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_step_by_step_equals_all_at_once(positions, norm):
    own, (source, mask, target) = model(positions, norm), sentences()
    with torch.no_grad():
        logits, weights = own(source, mask, target)
        memory = own.encode(source, mask)
        state = own.start(memory)
        for t in range(target.shape[1]):
            found = own.step(target[:, t], state, memory)
            state = found.state
            torch.testing.assert_close(found.logits, logits[:, t])
            torch.testing.assert_close(found.weights, weights[:, t])


@pytest.mark.parametrize("positions", POSITIONS)
def test_the_future_moves_nothing(positions):
    own, (source, mask, target) = model(positions), sentences()
    changed = target.clone()
    changed[:, 3:] = (changed[:, 3:] + 1) % 9
    before, after = own(source, mask, target).logits, own(source, mask, changed).logits
    assert torch.equal(before[:, :3], after[:, :3])
    assert (before[:, 3:] != after[:, 3:]).any(-1).all()


@pytest.mark.parametrize("positions", POSITIONS)
def test_padding_moves_nothing(positions):
    own, (source, mask, target) = model(positions), sentences()
    longer = torch.cat([source, torch.randint(11, (3, 4))], dim=1)
    padded = torch.cat([mask, torch.zeros(3, 4, dtype=torch.bool)], dim=1)
    torch.testing.assert_close(own(longer, padded, target).logits, own(source, mask, target).logits, **DOUBLE)
    alone = own(source[1:2, :2], mask[1:2, :2], target[1:2]).logits
    torch.testing.assert_close(own(source, mask, target).logits[1:2], alone, **DOUBLE)


@pytest.mark.parametrize("positions", POSITIONS)
def test_order_matters_to_the_source(positions):
    own, (source, mask, target) = model(positions), sentences()
    assert not torch.allclose(
        own(source.flip(1), mask | True, target).logits, own(source, mask | True, target).logits
    )


def test_a_source_without_words_gives_no_nan():
    own, (source, mask, target) = model(), sentences()
    own.train()
    mask = mask.clone()
    mask[1] = False
    logits = own(source, mask, target).logits
    logits.sum().backward()
    assert logits.isfinite().all() and all(p.grad.isfinite().all() for p in own.parameters())
    own.eval()
    assert (own(source, mask, target).weights[1] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("training", [True, False])
def test_half_precision_stays_finite(dtype, training):
    own, (source, mask, target) = model(dtype=dtype).train(training), sentences()
    logits = own(source, mask, target).logits
    logits.float().square().mean().backward()
    assert logits.isfinite().all() and all(p.grad.isfinite().all() for p in own.parameters())


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("training", [True, False])
def test_on_meta(positions, training):
    with torch.device("meta"):
        own = Transformer(11, 9, positions=positions, **SMALL).train(training)
        source, target = torch.zeros(3, 6, dtype=torch.int64), torch.zeros(3, 5, dtype=torch.int64)
        output = own(source, source == 0, target)
        memory = own.encode(source, source == 0)
        step = own.step(target[:, 0], own.start(memory), memory)
    (output.logits.sum() + step.logits.sum()).backward()
    assert all(p.grad.is_meta for p in own.parameters())


def test_beam_search_reorders_the_cache():
    own, (source, mask, _) = model(), sentences()
    found = decoding.beam_search(own, source, mask, 3, 8)
    for row in range(3):
        alone = decoding.beam_search(own, source[row : row + 1], mask[row : row + 1], 3, 8)
        length = int(found.lengths[row])
        assert torch.equal(found.tokens[row, :length], alone.tokens[0, :length])
        torch.testing.assert_close(found.scores[row], alone.scores[0])


def test_a_stack_alone_reads_with_any_mask_and_a_cache():
    torch.manual_seed(0)
    stack, tokens = Stack(11, positions="rotary", **SMALL).double(), torch.randint(11, (2, 6))
    whole = stack(tokens, causal_mask(6))
    first = stack(tokens[:, :4], causal_mask(4))
    rest = stack(tokens[:, 4:], causal_mask(6)[4:], cache=first.cache)
    torch.testing.assert_close(torch.cat([first.states, rest.states], dim=1), whole.states, **DOUBLE)
    assert not torch.allclose(stack(tokens, None).states, whole.states)
