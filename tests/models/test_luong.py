"""Luong's decoder against its equations, written out word by word for one sentence at a time."""

import itertools

import pytest
import torch
from torch import nn

from course_utils import decoding
from course_utils.models import AdditiveScore, DotScore, GeneralScore, LocationScore, luong

SCORES = ("dot", "general", "concat", "location")
KINDS = [
    *({"score": score, "feeding": feeding} for score, feeding in itertools.product(SCORES, (True, False))),
    *(
        {"window": window, "feeding": f}
        for window, f in itertools.product(("monotonic", "predictive"), (True, False))
    ),
    {"score": "general", "cell": "lstm"},
    {"score": "general", "cell": "lstm", "feeding": False},
]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: " ".join(map(str, kind.values())))
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def build(kind):
    torch.manual_seed(0)
    sizes = {"embedding": 5, "hidden": 8, "encoder_hidden": 4, "attention": 7, "longest": 9, "reach": 2}
    model = luong(11, 13, **sizes, **kind).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():  # far from zero, biases too, so that no mistake hides
            parameter.normal_(std=0.5)
    return model


def sentences():
    torch.manual_seed(1)
    mask = torch.arange(7) < torch.tensor([[7], [1], [4]])
    return torch.randint(11, (3, 7)), mask, torch.randint(13, (3, 5))


def scores_by_hand(score, s, h):
    if isinstance(score, AdditiveScore):
        W = torch.cat([score.query.weight, score.key.weight], dim=1)
        return torch.stack([score.v @ torch.tanh(W @ torch.cat([s, h_j])) for h_j in h])
    if isinstance(score, LocationScore):
        return (score.places.weight @ s)[: len(h)]
    if isinstance(score, GeneralScore):
        return torch.stack([s @ score.key.weight @ h_j for h_j in h])
    return torch.stack([s @ h_j for h_j in h])


def by_hand(model, kind, source, target):
    """Logits and weights of one sentence without padding: equations 5 to 10 and section 3.3."""
    decoder = model.decoder
    encoded = model.encoder(source[None], torch.ones_like(source, dtype=torch.bool)[None])
    h = encoded.states[0]
    first = torch.tanh(decoder.bridge(encoded.first[0]))
    lstm, feeding, window = kind.get("cell") == "lstm", kind.get("feeding", True), kind.get("window")
    state = tuple(part[None] for part in first.chunk(2 if lstm else 1))
    cell = (nn.LSTMCell if lstm else nn.GRUCell)(13 if feeding else 5, 8).double()
    own = decoder.cell if feeding else decoder.rnn
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in own.state_dict().items()})
    attentional, logits, rows = torch.zeros(8, dtype=torch.float64), [], []
    for t, token in enumerate(target):
        x = decoder.embedding(token)
        x = (torch.cat([x, attentional]) if feeding else x)[None]
        state = cell(x, state) if lstm else (cell(x, state[0]),)
        s, score = state[0][0], decoder.attention.score
        scores = scores_by_hand(score, s, h)
        if window:
            centre = torch.tensor(float(t))
            if window == "predictive":
                W_p, _, v_p = decoder.attention.centre
                centre = len(h) * torch.sigmoid(v_p.weight[0] @ torch.tanh(W_p.weight @ s))
            distance = torch.arange(len(h)) - centre
            inside = distance.abs() <= 2
            parts = torch.where(inside, scores.exp(), 0.0)
            a = parts / parts.sum().clamp(min=1e-300)
            if window == "predictive":
                a = a * torch.exp(-(distance**2) / (2 * (2 / 2) ** 2))
        else:
            a = scores.softmax(dim=0)
        attentional = torch.tanh(decoder.combine.weight @ torch.cat([a @ h, s]))
        logits.append(decoder.output(attentional))
        rows.append(a)
    return torch.stack(logits), torch.stack(rows)


@every_kind
def test_equal_to_the_paper_written_out(kind):
    model, (source, mask, target) = build(kind), sentences()
    found = model(source, mask, target)
    for row in range(3):
        length = int(mask[row].sum())
        logits, weights = by_hand(model, kind, source[row, :length], target[row])
        torch.testing.assert_close(found.logits[row], logits, **CLOSE)
        torch.testing.assert_close(found.weights[row, :, :length], weights, **CLOSE)
        assert (found.weights[row, :, length:] == 0).all()


@every_kind
def test_step_by_step_is_forward(kind):
    model, (source, mask, target) = build(kind), sentences()
    logits, weights = model(source, mask, target)
    memory = model.encode(source, mask)
    state = model.start(memory)
    for t in range(target.shape[1]):
        found = model.step(target[:, t], state, memory)
        state = found.state
        torch.testing.assert_close(found.logits, logits[:, t], **CLOSE)
        torch.testing.assert_close(found.weights, weights[:, t], **CLOSE)
    best = decoding.beam_search(model, source, mask, 3, 6)
    alone = decoding.beam_search(model, source[:1], mask[:1], 3, 6)
    torch.testing.assert_close(best.scores[:1], alone.scores)


@every_kind
def test_on_meta(kind):
    with torch.device("meta"):
        model = luong(11, 13, embedding=5, hidden=8, encoder_hidden=4, longest=9, **kind)
        source, target = torch.zeros(3, 7, dtype=torch.int64), torch.zeros(3, 5, dtype=torch.int64)
        logits, weights = model(source, source == 0, target)
    (logits.sum() + weights.sum()).backward()
    assert all(p.grad.is_meta for p in model.parameters())


@pytest.mark.parametrize("kind", [{"score": s} for s in SCORES] + [{"window": "predictive"}], ids=str)
def test_bfloat16_stays_finite(kind):
    model, (source, mask, target) = build(kind).bfloat16(), sentences()
    logits = model(source, mask, target).logits
    logits.float().square().mean().backward()
    assert logits.isfinite().all() and all(p.grad.isfinite().all() for p in model.parameters())


def test_a_dot_product_of_unequal_widths_says_how_to_mend_it():
    with pytest.raises(ValueError, match=r"128 numbers and an encoder state 256 .* 64, or take GeneralScore"):
        DotScore(128, 256)
    with pytest.raises(ValueError, match="equal widths"):
        luong(11, 13, score="dot", hidden=8, encoder_hidden=8)


def test_a_source_that_location_does_not_reach_is_refused():
    model, (source, mask, target) = luong(11, 13, score="location", longest=6), sentences()
    with pytest.raises(ValueError, match="7 tokens is longer than the 6"):
        model(source, mask, target)


def test_an_unknown_score_is_refused():
    with pytest.raises(ValueError, match="'cosine'; choose one of dot, general, concat, location"):
        luong(11, 13, score="cosine")
