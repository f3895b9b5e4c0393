import gc

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from course_utils.corpus import BOS, EOS, PAD
from course_utils.models import Encoder, Seq2Seq, bahdanau, fixed_vector, padding_mask
from course_utils.models.seq2seq import AttentionDecoder

SOURCE, TARGET = 11, 13  # vocabularies


class DotScore(nn.Module):
    """A score from outside: the seam that later lessons use."""

    def project_keys(self, encoder_states):
        return encoder_states

    def forward(self, query, keys):
        return query @ keys.mT


MODELS = {
    "bahdanau": lambda: bahdanau(SOURCE, TARGET, embedding=5, hidden=6, encoder_hidden=4, attention=7),
    "bahdanau lstm": lambda: bahdanau(
        SOURCE, TARGET, embedding=5, hidden=6, encoder_hidden=4, attention=7, cell="lstm"
    ),
    "dot": lambda: bahdanau(SOURCE, TARGET, embedding=5, hidden=8, encoder_hidden=4, score=DotScore()),
    "fixed_vector": lambda: fixed_vector(SOURCE, TARGET, embedding=5, hidden=6),
    "fixed_vector lstm": lambda: fixed_vector(SOURCE, TARGET, embedding=5, hidden=6, cell="lstm"),
    "fixed_vector forward": lambda: fixed_vector(SOURCE, TARGET, embedding=5, hidden=6, reverse=False),
}
every_model = pytest.mark.parametrize("name", MODELS)


def build(name, seed=0):
    torch.manual_seed(seed)
    model = MODELS[name]().double()
    with torch.no_grad():
        for parameter in model.parameters():  # far from zero, biases too, so that no mistake hides
            parameter.copy_(torch.randn(parameter.shape) * 0.5)
    return model


def sentences(seed=0, lengths=(6, 1, 4), target=(3, 5, 4)):
    """Source rows (a last EOS), target rows after BOS, as lists of 1-D tensors."""
    generator = torch.Generator().manual_seed(seed)
    sources = [torch.randint(4, SOURCE, (n - 1,), generator=generator) for n in lengths]
    targets = [torch.randint(4, TARGET, (n - 1,), generator=generator) for n in target]
    end, begin = torch.tensor([EOS]), torch.tensor([BOS])
    return [torch.cat([s, end]) for s in sources], [torch.cat([begin, t]) for t in targets]


def pad(rows, extra=0, fill=PAD):
    size = max(len(row) for row in rows) + extra
    out = torch.full((len(rows), size), fill)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out, padding_mask(torch.tensor([len(row) for row in rows]), size)


def loss_and_gradients(model, logits, target_mask, seed=5):
    """A loss that weighs every logit of a real word in its own way."""
    upstream = torch.randn(50, TARGET, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    real = logits[target_mask]
    loss = (torch.log_softmax(real, -1) * upstream[: len(real)]).sum()
    return loss.detach(), torch.autograd.grad(loss, list(model.parameters()))


# What the models should compute, one sentence and one step at a time.


def run(kind, rnn, inputs, state):
    """PyTorch's single step over `inputs`, with the parameters of an nn.GRU or nn.LSTM."""
    step = {"gru": torch.gru_cell, "lstm": torch.lstm_cell}[kind]
    weights = [getattr(rnn, f"{name}_l0") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    states = []
    for x in inputs:
        state = step(x[None], state, *weights)
        states.append((state[0] if kind == "lstm" else state)[0])
    return states, state


def zeros(kind, width):
    zero = torch.zeros(1, width, dtype=torch.float64)
    return (zero, zero) if kind == "lstm" else zero


def first_state(kind, decoder, vector, hidden):
    made = torch.tanh(decoder.bridge.weight @ vector + decoder.bridge.bias)[None]
    return (made[:, :hidden], made[:, hidden:]) if kind == "lstm" else made


def readout(decoder, parts):
    inner, _, _, outer = decoder.readout
    return outer.weight @ torch.tanh(inner.weight @ torch.cat(parts) + inner.bias) + outer.bias


def bahdanau_by_hand(model, kind, source, target_in):
    encoder, decoder = model.encoder, model.decoder
    embedded = encoder.embedding.weight[source]
    forward, _ = run(kind, encoder.forward_rnn, embedded, zeros(kind, encoder.hidden))
    backward, _ = run(kind, encoder.backward_rnn, embedded.flip(0), zeros(kind, encoder.hidden))
    h = [torch.cat([f, b]) for f, b in zip(forward, backward[::-1], strict=True)]  # (7)
    cell, score = decoder.cell, decoder.attention.score
    state = first_state(kind, decoder, backward[-1], cell.hidden_size)
    step = {"gru": torch.gru_cell, "lstm": torch.lstm_cell}[kind]
    logits, rows = [], []
    for word in target_in:
        s = (state[0] if kind == "lstm" else state)[0]  # s_{t-1}
        if isinstance(score, DotScore):
            e = torch.stack([s @ h_j for h_j in h])
        else:
            e = torch.stack(
                [score.v @ torch.tanh(score.query.weight @ s + score.key.weight @ h_j) for h_j in h]
            )
        a = e.exp() / e.exp().sum()  # (6)
        c = sum(a_j * h_j for a_j, h_j in zip(a, h, strict=True))  # (5)
        y = decoder.embedding.weight[word]
        state = step(
            torch.cat([y, c])[None], state, cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh
        )
        s = (state[0] if kind == "lstm" else state)[0]  # s_t
        logits.append(readout(decoder, [s, y, c]))
        rows.append(a)
    return torch.stack(logits), torch.stack(rows)


def fixed_vector_by_hand(model, kind, source, target_in):
    encoder, decoder = model.encoder, model.decoder
    embedded = encoder.embedding.weight[source]
    rnn, read = (
        (encoder.backward_rnn, embedded.flip(0)) if encoder.backward_rnn else (encoder.forward_rnn, embedded)
    )
    states, _ = run(kind, rnn, read, zeros(kind, encoder.hidden))
    vector = states[-1]
    words = decoder.embedding.weight[target_in]
    state = first_state(kind, decoder, vector, decoder.rnn.hidden_size)
    states, _ = run(kind, decoder.rnn, [torch.cat([y, vector]) for y in words], state)
    return torch.stack([readout(decoder, [s, y, vector]) for s, y in zip(states, words, strict=True)]), None


@every_model
def test_equal_to_the_paper_written_out(name):
    model = build(name)
    kind = "lstm" if "lstm" in name else "gru"
    by_hand = fixed_vector_by_hand if "fixed" in name else bahdanau_by_hand
    sources, targets = sentences()
    source, source_mask = pad(sources)
    target_in, target_mask = pad(targets)
    output = model(source, source_mask, target_in)
    wanted = [by_hand(model, kind, s, t) for s, t in zip(sources, targets, strict=True)]
    for i, (logits, weights) in enumerate(wanted):
        torch.testing.assert_close(output.logits[i, : len(targets[i])], logits, rtol=1e-10, atol=1e-10)
        if weights is not None:
            real = output.weights[i, : len(targets[i]), : len(sources[i])]
            torch.testing.assert_close(real, weights, rtol=1e-10, atol=1e-10)

    together = torch.cat([logits for logits, _ in wanted])[None]
    everything = torch.ones(together.shape[:2], dtype=torch.bool)
    torch.testing.assert_close(
        loss_and_gradients(model, output.logits, target_mask),
        loss_and_gradients(model, together, everything),
        rtol=1e-9,
        atol=1e-10,
    )


@every_model
@given(
    seed=st.integers(0, 1000),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    extra=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    fill=st.integers(0, SOURCE - 1),
)
@settings(deadline=None, max_examples=12)
def test_padding_changes_nothing(name, seed, lengths, extra, fill):
    """More padding, and other words on it: the same logits, weights and gradients."""
    model = build(name, seed)
    sources, targets = sentences(seed, lengths, lengths[::-1])
    outputs, gradients = [], []
    for more, word in [((0, 0), PAD), (extra, fill)]:
        source, source_mask = pad(sources, more[0], word)
        target_in, target_mask = pad(targets, more[1], word)
        output = model(source, source_mask, target_in)
        width, length = max(map(len, sources)), max(map(len, targets))
        real = [output.logits[target_mask]]
        if output.weights is not None:
            assert (output.weights[:, :, width:] == 0).all()
            real.append(output.weights[:, :length, :width][target_mask[:, :length]])
        outputs.append(real)
        gradients.append(loss_and_gradients(model, output.logits, target_mask))
    torch.testing.assert_close(outputs[0], outputs[1], rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-10, atol=1e-10)


@every_model
def test_step_by_step_is_forward(name):
    model = build(name)
    source, source_mask = pad(sentences()[0])
    target_in, _ = pad(sentences()[1])
    output = model(source, source_mask, target_in)
    memory = model.encode(source, source_mask)
    state = model.start(memory)
    assert all(len(x) == len(source) for x in (*memory, *state))  # batch first, for the search
    for t in range(target_in.shape[1]):
        logits, state, weights = model.step(target_in[:, t], state, memory)
        torch.testing.assert_close(logits, output.logits[:, t])
        if output.weights is None:
            assert weights is None
        else:
            torch.testing.assert_close(weights, output.weights[:, t])


@pytest.mark.parametrize("name", [name for name in MODELS if "fixed" not in name])
def test_weights_are_a_distribution_over_the_real_source(name):
    source, source_mask = pad(sentences()[0], extra=2)
    target_in, _ = pad(sentences()[1])
    weights = build(name)(source, source_mask, target_in).weights
    assert weights.shape == (3, target_in.shape[1], source.shape[1])
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert (weights.masked_select(~source_mask[:, None].expand_as(weights)) == 0).all()
    assert (weights >= 0).all()


@every_model
def test_a_decoder_does_not_see_the_future(name):
    model = build(name)
    source, source_mask = pad(sentences()[0])
    target_in, _ = pad(sentences()[1])
    changed = target_in.clone()
    changed[:, 2:] = 7
    before, after = (model(source, source_mask, t).logits for t in (target_in, changed))
    torch.testing.assert_close(before[:, :2], after[:, :2])
    assert not torch.allclose(before[:, 2:], after[:, 2:])


@every_model
@pytest.mark.parametrize("backward", [True, False])
def test_a_pass_leaves_nothing_in_memory(name, backward):
    """Neither after its gradient was taken nor where nobody asks for one."""
    model = build(name)
    (source, source_mask), (target_in, _) = map(pad, sentences()[:2])

    def tensors_after_a_pass() -> int:
        total = model(source, source_mask, target_in).logits.sum()
        if backward:
            total.backward()
        del total
        gc.collect()
        return sum(type(thing) is torch.Tensor for thing in gc.get_objects())

    first = tensors_after_a_pass()
    assert [tensors_after_a_pass() for _ in range(3)] == [first] * 3


@every_model
def test_on_meta(name):
    with torch.device("meta"):
        model = MODELS[name]()
        source, target_in = torch.randint(0, SOURCE, (3, 6)), torch.randint(0, TARGET, (3, 4))
        source_mask = torch.ones(3, 6, dtype=torch.bool)
    output = model(source, source_mask, target_in)
    output.logits.logsumexp(-1).sum().backward()
    assert output.logits.shape == (3, 4, TARGET) and output.logits.is_meta
    assert all(p.grad is not None and p.grad.is_meta for p in model.parameters())


# PyTorch's own nn.LSTM cannot run in bfloat16 on CPUs without the instructions for it.
@pytest.mark.parametrize("name", [name for name in MODELS if "lstm" not in name])
def test_autocast_gives_finite_values(name):
    model = MODELS[name]()
    source, source_mask = pad(sentences()[0], extra=1)
    target_in, target_mask = pad(sentences()[1])
    exact = model(source, source_mask, target_in)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(source, source_mask, target_in)
    torch.testing.assert_close(output.logits.float(), exact.logits, rtol=0.1, atol=0.1)
    if output.weights is not None:
        torch.testing.assert_close(
            output.weights.sum(-1).float(), torch.ones(target_in.shape), rtol=0, atol=0.02
        )
    output.logits[target_mask].float().logsumexp(-1).sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@every_model
def test_gradients_come_out_the_same_twice(name):
    """A second backward pass through the same graph, and a pass to part of it, disturb nothing."""
    model = build(name)
    source, source_mask = pad(sentences()[0])
    target_in, _ = pad(sentences()[1])
    loss = model(source, source_mask, target_in).logits.square().mean()
    parameters = list(model.parameters())
    first = torch.autograd.grad(loss, parameters, retain_graph=True)
    torch.autograd.grad(loss, parameters[-1:], retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(loss, parameters), first)


def test_dropout_is_for_training_only():
    torch.manual_seed(0)
    source, source_mask = pad(sentences()[0])
    target_in, _ = pad(sentences()[1])
    for make in (bahdanau, fixed_vector):
        model = make(SOURCE, TARGET, embedding=5, hidden=6, dropout=0.5)
        one, two = (model(source, source_mask, target_in).logits for _ in range(2))
        assert not torch.allclose(one, two)
        model.eval()
        one, two = (model(source, source_mask, target_in).logits for _ in range(2))
        assert torch.equal(one, two)


def test_encoder_and_decoder_are_parts_of_their_own():
    encoder = Encoder(SOURCE, embedding=5, hidden=4)
    decoder = AttentionDecoder(TARGET, embedding=3, hidden=8, encoder=encoder, score=DotScore())
    source, source_mask = pad(sentences()[0])
    target_in, _ = pad(sentences()[1])
    assert Seq2Seq(encoder, decoder)(source, source_mask, target_in).logits.shape == (3, 5, TARGET)
    encoded = encoder(source, source_mask)
    assert encoded.states.shape == (3, 6, 8)
    torch.testing.assert_close(encoded.first, encoded.states[:, 0, 4:])  # backward h_1
    assert (encoded.states[~source_mask] == 0).all()


def test_an_encoder_of_one_direction_reads_from_the_end_or_from_the_start():
    torch.manual_seed(0)
    both = Encoder(SOURCE, embedding=5, hidden=4)
    back = Encoder(SOURCE, embedding=5, hidden=4, bidirectional=False)
    onward = Encoder(SOURCE, embedding=5, hidden=4, bidirectional=False, reverse=False)
    back.embedding, back.backward_rnn = both.embedding, both.backward_rnn
    onward.embedding, onward.forward_rnn = both.embedding, both.forward_rnn
    source, source_mask = pad(sentences()[0])
    whole, backward, forward = (encoder(source, source_mask) for encoder in (both, back, onward))
    torch.testing.assert_close(backward.states, whole.states[..., 4:])
    torch.testing.assert_close(backward.first, whole.first)
    torch.testing.assert_close(forward.states, whole.states[..., :4])
    last = source_mask.sum(1) - 1
    torch.testing.assert_close(forward.first, forward.states[torch.arange(len(source)), last])


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_the_encoder_agrees_with_packing(cell):
    torch.manual_seed(0)
    encoder = Encoder(SOURCE, embedding=5, hidden=4, cell=cell)
    packed_rnn = {"gru": nn.GRU, "lstm": nn.LSTM}[cell](5, 4, batch_first=True, bidirectional=True)
    for suffix, rnn in [("", encoder.forward_rnn), ("_reverse", encoder.backward_rnn)]:
        packed_rnn.load_state_dict({f"{k}{suffix}": v for k, v in rnn.state_dict().items()}, strict=False)
    source, source_mask = pad(sentences(lengths=(6, 1, 4, 6, 3))[0], extra=2)
    states, first = encoder(source, source_mask)
    packed = pack_padded_sequence(
        encoder.embedding(source), source_mask.sum(1), batch_first=True, enforce_sorted=False
    )
    wanted, last = packed_rnn(packed)
    wanted, _ = pad_packed_sequence(wanted, batch_first=True, total_length=source.shape[1])
    torch.testing.assert_close(states, wanted)
    torch.testing.assert_close(first, (last[0] if cell == "lstm" else last)[1])
