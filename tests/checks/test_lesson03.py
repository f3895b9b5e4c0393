"""The text of lesson 03's exercises, and the searches that their cases are made with."""

import itertools

import numpy as np
import pytest
import torch
from test_solutions import cells, functions

from course_utils import checks
from course_utils.checks import lesson03


def test_minutes_and_points_at_the_top():
    top = " ".join(cells("03")[0].source.split())
    offered = checks.exercises("03")
    assert f"{sum(e.points for e in offered)} points, about {sum(e.minutes for e in offered)} minutes" in top
    assert sum(e.points for e in offered) == 10


def scripted(rows, vocabulary):
    """A step that says these sentences, whatever it reads: row i says rows[i], its state counts the words."""

    def step(token, state):
        scores = torch.full((len(token), vocabulary), -20.0)
        for row in range(len(token)):
            said = rows[row]
            scores[row, said[min(int(state[row]), len(said) - 1)]] = 0.0
        return scores.log_softmax(-1), state + 1

    return step


def by_last_word(table):
    """A step whose probabilities depend on the word that it reads alone: {word: probabilities}."""

    def step(token, state):
        return torch.tensor([table[int(t)] for t in token]).log(), state

    return step


def test_tiny_examples():
    """The numbers in the text come out of the solutions."""
    answers = functions("03")
    tensor, close = torch.tensor, torch.testing.assert_close

    target_in, target_out = answers["shift_targets"](tensor([[7, 8, 0], [5, 6, 9]]), 1, 2, 0)
    assert target_in.tolist() == [[1, 7, 8, 0], [1, 5, 6, 9]]
    assert target_out.tolist() == [[7, 8, 2, 0], [5, 6, 9, 2]]

    logits = tensor([[[2.0, 0, 0], [2, 0, 0], [0, 0, 0]]])
    words, mask = tensor([[0, 0, 1]]), tensor([[True, True, False]])
    close(answers["padded_loss"](logits, words, mask), tensor(0.2395), atol=5e-5, rtol=0)
    each = torch.nn.functional.cross_entropy(logits.mT, words, reduction="none")
    close(each.mean(), tensor(0.5259), atol=5e-5, rtol=0)
    close((each * mask).mean(), tensor(0.1597), atol=5e-5, rtol=0)

    gru = torch.nn.GRU(1, 1, batch_first=True)
    for name, weight in gru.named_parameters():
        torch.nn.init.zeros_(weight)
        if name == "weight_ih_l0":
            weight.data[2] = 1.0  # the candidate's: the gates stand in the order r, z, n
    sentence = tensor([[[1.0], [2], [0], [0]]])
    states = tensor([0.3808, 0.6724, 0.3362, 0.1681])
    close(gru(sentence)[0].flatten(), states, atol=5e-5, rtol=0)
    state = answers["encoder_state"](sentence, tensor([[True, True, False, False]]), gru)
    close(state, tensor([[0.6724]]), atol=5e-5, rtol=0)

    step = scripted([[7, 8, 2], [5, 2]], 9)
    for max_length, expected in ((5, [[7, 8, 2], [5, 2, 0]]), (2, [[7, 8], [5, 2]])):
        tokens = answers["greedy_decode"](step, torch.zeros(2, 1), 1, 2, 0, max_length)
        assert tokens.tolist() == expected

    a, b, eos, bos = range(4)
    step = by_last_word({bos: [0.6, 0.4, 0, 0], a: [0.25, 0.25, 0.5, 0], b: [0.05, 0.05, 0.9, 0]})
    for width, alpha, expected, score in (
        (1, 0.0, [a, eos], np.log(0.30)),
        (2, 0.0, [b, eos], np.log(0.36)),
        (2, 1.0, [b, eos], -0.5108),
    ):
        tokens, found = answers["beam_search"](step, torch.zeros(1, 1), bos, eos, width, 4, alpha)
        assert tokens.tolist() == expected and found == pytest.approx(score, abs=5e-5)

    cat, there = ["the", "cat", "is", "on", "the", "mat"], ["there", "is", "a", "cat", "on", "the", "mat"]
    assert answers["bleu_factors"](["the"] * 7, [cat, there], 1) == pytest.approx((0.2857, 1), abs=5e-5)
    assert answers["bleu_factors"](["the", "cat"], [cat], 1) == pytest.approx((1, 0.1353), abs=5e-5)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_wide_beam_finds_the_best_of_all_sentences(seed, alpha):
    """The reference of 03.5 against brute force, for few words and short sentences."""
    rng = np.random.default_rng(seed)
    inputs = lesson03._model(rng, 5, 2) | {"state": lesson03.normal(rng, 1, 2)}
    inputs |= {"width": 200, "max_length": 4, "alpha": alpha}
    words = [w for w in range(5) if w not in (inputs["bos"], inputs["eos"], inputs["pad"])]
    sentences = [
        [*said, inputs["eos"]] for length in range(4) for said in itertools.product(words, repeat=length)
    ]

    def score(tokens):
        exact, total = lesson03._in_float64(inputs), 0.0
        state = exact["state"]
        for before, word in zip([inputs["bos"], *tokens], tokens, strict=False):
            steps, state = lesson03._read(exact, np.array([before]), state)
            total += steps[0, word]
        return total / len(tokens) ** alpha

    best = max(sentences, key=score)
    tokens, found, _ = lesson03._search(inputs)
    assert tokens == best and found == pytest.approx(score(best))


def test_cases_are_what_they_are_for():
    """A beam that must reorder, a first end that is not the best, few words, no end, a tempting cut."""
    for seed in range(3):
        for case in lesson03._draw_beam(seed):
            best = lesson03._search(case)[0]
            assert best != lesson03._search(case, width=1)[0]
            assert best != lesson03._search(case, reorder=False)[0]
        longer, few, endless, _, cut = lesson03._draw_beam_lengths(seed)
        assert lesson03._search(longer)[0] != lesson03._search(longer, stop="first")[0]
        assert few["width"] > len(few["bias"])
        assert len(lesson03._search(endless)[0]) == endless["max_length"]
        assert lesson03._search(cut)[0] != lesson03._search(cut, open_too=True)[0]
        rows = lesson03._greedy_reference(lesson03._draw_greedy(seed)[-1])["tokens"]
        assert len({tuple(row == lesson03._draw_greedy(seed)[-1]["pad"]) for row in rows}) > 1


def test_a_score_that_is_not_the_sentences_is_said():
    """Where states and beginnings are mixed up in a way that no named mistake has."""

    def mixed_up(*given):
        tokens, score = lesson03._beam_answer(*given)
        return tokens, score - 0.1

    exercise = checks.find("03.5")
    verdict = checks.verdict(exercise, mixed_up)
    assert verdict.points == 0
    assert all("is not the one of your tokens" in part.finding.message for part in verdict.parts)
