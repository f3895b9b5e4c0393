import itertools

import numpy as np
import pytest
import torch
from torch import nn

from course_utils.corpus import BOS, EOS, PAD, UNK, Pair, Vocabulary
from course_utils.decoding import attend, beam_search, greedy, translate
from course_utils.models import bahdanau, fixed_vector, padding_mask
from course_utils.models.seq2seq import Output, StepOutput

ENGLISH = Vocabulary(["the", "a", "blue", "small", "house", "cat", "sees"])
FRENCH = Vocabulary(["le", "la", "bleue", "petite", "maison", "chat", "voit"])
WORDS = len(ENGLISH)  # in either language
MAKERS = {
    "bahdanau": lambda *sizes: bahdanau(*sizes, embedding=5, hidden=6, encoder_hidden=4, attention=5),
    "bahdanau lstm": lambda *sizes: bahdanau(
        *sizes, embedding=5, hidden=6, encoder_hidden=4, attention=5, cell="lstm"
    ),
    "fixed_vector": lambda *sizes: fixed_vector(*sizes, embedding=5, hidden=6),
}
every_model = pytest.mark.parametrize("name", MAKERS)


def build(name, seed=0, target=WORDS):
    """A model of random weights, large enough that its sentences differ, with real chances to end."""
    model = MAKERS[name](WORDS, target).double()
    # After building: how a model starts does not matter. With these seeds its sentences differ in length.
    torch.manual_seed(seed + 80)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 1.8)
    return model


def sources(seed, lengths, size=WORDS):
    generator = torch.Generator().manual_seed(seed)
    mask = padding_mask(torch.tensor(lengths))
    source = torch.randint(4, size, mask.shape, generator=generator).masked_fill(~mask, PAD)
    source[torch.arange(len(lengths)), torch.tensor(lengths) - 1] = EOS
    return source, mask


def log_probability(model, source, mask, tokens):
    """Of one target sentence, token by token through `step`."""
    memory = model.encode(source, mask)
    state, before, total = model.start(memory), BOS, 0.0
    for token in tokens:
        logits, state, _ = model.step(torch.tensor([before]), state, memory)
        total += torch.log_softmax(logits, -1)[0, token].item()
        before = token
    return total


@every_model
def test_greedy_takes_the_best_word_at_each_step(name):
    model = build(name)
    source, mask = sources(1, [5, 2, 7, 1, 4, 3, 6])
    found = greedy(model, source, mask, 9)
    with torch.no_grad():
        for i in range(len(source)):
            memory = model.encode(source[i : i + 1], mask[i : i + 1])
            state, word, expected = model.start(memory), BOS, []
            while word != EOS and len(expected) < 9:
                logits, state, _ = model.step(torch.tensor([word]), state, memory)
                logits[:, [PAD, BOS]] = -torch.inf
                word = int(logits.argmax())
                expected.append(word)
            assert found.tokens[i, : found.lengths[i]].tolist() == expected
            assert (found.tokens[i, found.lengths[i] :] == PAD).all()
            total = log_probability(model, source[i : i + 1], mask[i : i + 1], expected)
            assert found.scores[i].item() == pytest.approx(total, abs=1e-9)
    assert len(set(found.lengths.tolist())) > 1  # some ended early, or the test shows little


@every_model
@pytest.mark.parametrize("length_penalty", [0.0, 0.7, 1.0, 2.0])
def test_greedy_is_a_beam_of_one(name, length_penalty):
    model = build(name, seed=3)
    source, mask = sources(2, [5, 2, 7, 4])
    one, beam = greedy(model, source, mask, 8), beam_search(model, source, mask, 1, 8, length_penalty)
    for a, b in zip(one, beam, strict=True):
        assert (a is None and b is None) or torch.equal(a, b)


@every_model
@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0])
def test_a_wide_beam_finds_what_trying_everything_finds(name, length_penalty):
    """With two words and UNK there are 40 sentences of at most 4 tokens; 120 places hold all beginnings."""
    for seed in range(2):
        model = build(name, seed, target=6)
        source, mask = sources(seed, [4, 2])
        found = beam_search(model, source, mask, 120, 4, length_penalty)
        for i in range(2):
            everything = {}
            for words in itertools.chain.from_iterable(
                itertools.product([UNK, 4, 5], repeat=n) for n in range(4)
            ):
                tokens = (*words, EOS)
                score = log_probability(model, source[i : i + 1], mask[i : i + 1], tokens)
                everything[tokens] = score / len(tokens) ** length_penalty
            assert len(everything) == 40
            best = max(everything, key=everything.get)
            assert tuple(found.tokens[i, : found.lengths[i]].tolist()) == best
            assert found.scores[i].item() == pytest.approx(
                everything[best] * len(best) ** length_penalty, abs=1e-9
            )


def beam_by_hand(model, source, mask, width, limit, length_penalty):
    """One sentence, beginnings as tuples, each read again from its first word; no early stop."""
    live, ended = [((), 0.0)], []
    for _ in range(limit):
        candidates = []
        for words, total in live:
            logits = model(source, mask, torch.tensor([[BOS, *words]])).logits[0, -1]
            steps = torch.log_softmax(logits, -1).tolist()
            candidates += [((*words, w), total + x) for w, x in enumerate(steps) if w not in (PAD, BOS)]
        kept = sorted(candidates, key=lambda c: -c[1])[:width]
        ended += [c for c in kept if c[0][-1] == EOS]
        live = [c for c in kept if c[0][-1] != EOS]
    return max(ended, key=lambda c: c[1] / len(c[0]) ** length_penalty) if ended else live[0]


@every_model
@pytest.mark.parametrize("width, length_penalty", [(2, 1.0), (3, 0.0), (4, 1.5)])
def test_a_narrow_beam_keeps_what_a_search_written_out_keeps(name, width, length_penalty):
    lengths = set()
    for seed in range(6):
        model = build(name, seed)
        with torch.no_grad():
            model.decoder.readout[-1].bias[EOS] += 1.5  # short sentences and long ones
        source, mask = sources(seed, [4, 2])
        limits = [7, 3]  # the second row has to stop while the first goes on
        found = beam_search(model, source, mask, width, torch.tensor(limits), length_penalty)
        for i in range(2):
            with torch.no_grad():
                words, total = beam_by_hand(
                    model, source[i : i + 1], mask[i : i + 1], width, limits[i], length_penalty
                )
            assert found.tokens[i, : found.lengths[i]].tolist() == list(words)
            assert found.scores[i].item() == pytest.approx(total, abs=1e-9)
            lengths.add(len(words))
    assert len(lengths) > 1


def test_the_length_penalty_prefers_longer_sentences():
    model = build("bahdanau", seed=1, target=6)
    source, mask = sources(0, [4, 2, 5, 3])
    lengths = [beam_search(model, source, mask, 60, 5, a).lengths.float().mean() for a in (0.0, 1.0, 3.0)]
    assert lengths == sorted(lengths) and lengths[0] < lengths[-1]


@every_model
@pytest.mark.parametrize("width", [1, 3])
def test_batched_is_one_by_one(name, width):
    model = build(name, seed=4)
    lengths = [5, 2, 7, 1, 4]
    source, mask = sources(3, lengths)
    limit = torch.tensor([9, 3, 12, 5, 1])
    together = beam_search(model, source, mask, width, limit)
    for i, length in enumerate(lengths):
        alone = beam_search(model, source[i : i + 1, :length], mask[i : i + 1, :length], width, int(limit[i]))
        n = int(alone.lengths)
        assert n == together.lengths[i] <= limit[i]
        assert torch.equal(alone.tokens[0], together.tokens[i, :n])
        torch.testing.assert_close(alone.scores[0], together.scores[i])
        if alone.weights is not None:
            torch.testing.assert_close(alone.weights[0], together.weights[i, :n, :length])
            assert (together.weights[i, n:] == 0).all()


def test_weights_and_scores_are_those_of_the_steps():
    model = build("bahdanau", seed=5)
    source, mask = sources(4, [5, 3])
    found = greedy(model, source, mask, 6)
    with torch.no_grad():
        memory = model.encode(source, mask)
        state, token = model.start(memory), torch.full((2,), BOS)
        for t in range(found.tokens.shape[1]):
            _, state, weights = model.step(token, state, memory)
            going = (t < found.lengths)[:, None]
            torch.testing.assert_close(found.weights[:, t], weights * going)
            token = found.tokens[:, t]


class Scripted(nn.Module):
    """Says the numbers of its source one after another, whatever it has said; counts its steps."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(()))
        self.steps = 0

    def encode(self, source, source_mask):
        return (source,)

    def start(self, memory):
        return (torch.zeros(len(memory[0]), dtype=torch.long),)

    def step(self, token, state, memory):
        self.steps += 1
        (place,) = state
        word = memory[0].gather(1, place.clamp(max=memory[0].shape[1] - 1)[:, None])
        logits = torch.zeros(len(token), 9).scatter(1, word, 8.0)
        return StepOutput(logits, (place + 1,), None)

    def forward(self, source, source_mask, target_in):
        return Output(torch.zeros(*target_in.shape, 9), None)


@pytest.mark.parametrize("width", [1, 4])
def test_the_search_stops_when_all_rows_have_ended(width):
    model = Scripted()
    source, mask = sources(0, [5, 2, 3], size=9)
    found = beam_search(model, source, mask, width, 50)
    assert found.tokens.tolist() == source.tolist()
    assert found.lengths.tolist() == [5, 2, 3]
    if width == 1:
        assert model.steps == 5


def test_a_sentence_that_does_not_end_is_cut_at_its_own_length():
    source = torch.tensor([[4, 5, 6, 7, 8, 4], [5, EOS, PAD, PAD, PAD, PAD], [6, 6, 6, 6, 6, 6]])
    for width in (1, 3):
        found = beam_search(Scripted(), source, source != PAD, width, torch.tensor([3, 6, 1]), 0.0)
        assert found.tokens.tolist() == [[4, 5, 6], [5, EOS, PAD], [6, PAD, PAD]]


def test_a_row_does_not_end_beyond_its_own_length_while_others_go_on():
    source = torch.tensor([[4, 5, 6, EOS, PAD, PAD], [7, 8, 7, 8, 7, EOS]])
    for width in (1, 3):  # with this penalty the longer sentence would win
        found = beam_search(Scripted(), source, source != PAD, width, torch.tensor([2, 6]), 2.0)
        assert found.tokens.tolist() == [[4, 5, PAD, PAD, PAD, PAD], [7, 8, 7, 8, 7, EOS]]


@pytest.mark.parametrize("width, length, penalty", [(0, 5, 1.0), (1, 0, 1.0), (2, 5, -1.0)])
def test_senseless_searches_are_refused(width, length, penalty):
    source, mask = sources(0, [3])
    with pytest.raises(ValueError, match="have to be 1 or more"):
        beam_search(Scripted(), source, mask, width, length, penalty)


SENTENCES = [
    ["the", "blue", "house"],
    ["a", "cat"],
    [],
    ["the", "small", "dog", "sees", "the", "green", "house"],
    ["cat"],
    ["the", "cat", "sees", "a", "house"],
]


@every_model
@pytest.mark.parametrize("beam", [1, 3])
def test_translate_keeps_the_order_whatever_the_batches(name, beam):
    model = build(name, seed=6)
    whole = translate(model, SENTENCES, ENGLISH, FRENCH, beam=beam)
    small = translate(model, SENTENCES, ENGLISH, FRENCH, beam=beam, batch_tokens=9)
    alone = [translate(model, [s], ENGLISH, FRENCH, beam=beam)[0] for s in SENTENCES]
    assert len({tuple(t.tokens) for t in whole}) > 2
    for sentence, *versions in zip(SENTENCES, whole, small, alone, strict=True):
        for version in versions:
            assert version.tokens == versions[0].tokens
            assert version.score == pytest.approx(versions[0].score)
            assert version.source == [w if w in ENGLISH else "<unk>" for w in sentence]
            if name == "fixed_vector":
                assert version.weights is None
                continue
            assert version.weights.dtype == np.float32
            np.testing.assert_allclose(version.weights, versions[0].weights, atol=1e-6)
            np.testing.assert_allclose(version.weights.sum(axis=1), 1, atol=1e-6)
            ended = len(version.weights) - len(version.tokens)
            assert ended in (0, 1) and version.weights.shape[1] == len(sentence) + 1
            assert ended or len(version.tokens) == 2 * len(sentence) + 10


def test_unknown_words_are_named():
    translation = translate(build("bahdanau"), SENTENCES, ENGLISH, FRENCH)[3]
    assert translation.unknown == ["dog", "green"]
    assert translation.source == ["the", "small", "<unk>", "sees", "the", "<unk>", "house"]


def test_max_length_counts_every_token():
    model = build("fixed_vector", seed=2)
    for length in (1, 3):
        for translation in translate(model, SENTENCES, ENGLISH, FRENCH, max_length=length):
            assert len(translation.tokens) <= length


def test_nothing_to_translate():
    assert translate(build("bahdanau"), [], ENGLISH, FRENCH) == []
    assert attend(build("bahdanau"), [], ENGLISH, FRENCH) == []


def test_a_string_is_not_a_sentence():
    with pytest.raises(TypeError, match=r"'the cat'.*tokenise"):
        translate(build("bahdanau"), ["the cat"], ENGLISH, FRENCH)


def test_attend_reads_the_gold_translation():
    model = build("bahdanau", seed=7)
    pairs = [
        Pair(("the", "cat"), ("le", "chat")),
        Pair((), ("la",)),
        Pair(("a", "blue", "house", "sees"), ("maison",)),
        Pair(("a", "blue", "dog"), ("chat", "bleue", "le")),
    ]
    for size in (8192, 1):
        weights = attend(model, pairs, ENGLISH, FRENCH, batch_tokens=size)
        for pair, array in zip(pairs, weights, strict=True):
            assert array.shape == (len(pair.target) + 1, len(pair.source) + 1)
            source = torch.tensor([[*ENGLISH.encode(pair.source), EOS]])
            target_in = torch.tensor([[BOS, *FRENCH.encode(pair.target)]])
            with torch.no_grad():
                expected = model(source, torch.ones_like(source, dtype=torch.bool), target_in).weights[0]
            np.testing.assert_allclose(array, expected.numpy(), atol=1e-6)


def test_attend_needs_attention():
    with pytest.raises(ValueError, match="without attention"):
        attend(build("fixed_vector"), [Pair(("cat",), ("chat",))], ENGLISH, FRENCH)


def test_the_model_is_left_as_it_was():
    model = bahdanau(len(ENGLISH), len(FRENCH), embedding=5, hidden=6, encoder_hidden=4, dropout=0.5)
    model.train()
    model.encoder.eval()
    modes = [module.training for module in model.modules()]
    one, two = (translate(model, SENTENCES, ENGLISH, FRENCH) for _ in range(2))
    assert [t.tokens for t in one] == [t.tokens for t in two]  # no dropout in a translation
    attend(model, [Pair(("cat",), ("chat",))], ENGLISH, FRENCH)
    assert [module.training for module in model.modules()] == modes
    with pytest.raises(ValueError):
        translate(model, SENTENCES, ENGLISH, FRENCH, beam=0)
    assert [module.training for module in model.modules()] == modes
    source, mask = sources(0, [3])
    model(source, mask, torch.tensor([[BOS, 4]])).logits.sum().backward()  # and can be trained on
