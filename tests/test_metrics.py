"""Translation quality and alignment error: by hand, against sacrebleu, and by their properties."""

import math
import random

import numpy as np
import pytest
import sacrebleu
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_utils.metrics import (
    alignment,
    alignment_error_rate,
    bleu,
    bleu_by_length,
    chrf,
    links_from_weights,
)

WORDS = ["the", "a", "blue", "small", "house", "garden", "sees", "reads", "not", ".", ","]


def noisy_corpus(count: int, *, seed: int, low: int = 4, high: int = 30) -> tuple[list, list]:
    """References, and hypotheses in which a fifth of the words went wrong."""
    rng = random.Random(seed)
    references = [rng.choices(WORDS, k=rng.randint(low, high)) for _ in range(count)]
    hypotheses = [[rng.choice(WORDS) if rng.random() < 0.2 else w for w in r] for r in references]
    return hypotheses, references


# BLEU and chrF


def test_bleu_and_chrf_agree_with_sacrebleu():
    hypotheses, references = noisy_corpus(120, seed=1)
    texts = [[" ".join(s) for s in side] for side in (hypotheses, references)]
    expected = sacrebleu.corpus_bleu(texts[0], [texts[1]], tokenize="none", force=True).score
    assert 20 < expected < 80
    assert bleu(hypotheses, references) == expected == bleu(*texts)
    assert chrf(hypotheses, references) == sacrebleu.corpus_chrf(texts[0], [texts[1]]).score == chrf(*texts)


def test_bleu_takes_tokens_as_they_are():
    """A tokeniser inside would split the full stop off and find three matches more."""
    assert bleu(["she reads the long book."], ["she reads the long book ."]) < 100


@given(st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=9), min_size=1, max_size=5))
def test_a_perfect_translation_scores_100_however_short(sentences):
    assert bleu(sentences, sentences) == pytest.approx(100)
    assert chrf(sentences, sentences) == pytest.approx(100)


def test_scoring_tokenised_text_is_silent(caplog, capsys):
    sentences = [["a", "b", "c", "d", "."]] * 150
    bleu(sentences, sentences)
    bleu_by_length(sentences, sentences, [5] * 150, [(1, 9)], resamples=3)
    assert not caplog.records
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("score", [bleu, chrf])
def test_what_cannot_be_scored_is_named(score):
    with pytest.raises(ValueError, match="no sentences to score"):
        score([], [])
    with pytest.raises(ValueError, match="2 hypotheses for 1 references"):
        score([["a"], ["b"]], [["a"]])
    with pytest.raises(ValueError, match="hypotheses is one string"):
        score("a b", ["a b"])


def test_an_empty_hypothesis_is_a_bad_translation_and_no_error():
    assert bleu([[]], [["a", "b"]]) == 0
    assert chrf([""], ["a b"]) == 0


# BLEU by length


def test_each_bin_scores_its_own_sentences():
    hypotheses, references = noisy_corpus(300, seed=2)
    lengths = [len(r) for r in references]
    bins = bleu_by_length(hypotheses, references, lengths, [(4, 10), (11, 30)], resamples=200)
    assert [(b.low, b.high) for b in bins] == [(4, 10), (11, 30)]
    assert sum(b.count for b in bins) == 300
    for b in bins:
        inside = [i for i, n in enumerate(lengths) if b.low <= n <= b.high]
        assert b.count == len(inside)
        expected = bleu([hypotheses[i] for i in inside], [references[i] for i in inside])
        assert b.score == pytest.approx(expected)
        assert b.low_ci < b.score < b.high_ci


def test_the_interval_narrows_with_more_sentences():
    hypotheses, references = noisy_corpus(800, seed=3, low=10, high=10)

    def width(count: int) -> float:
        (b,) = bleu_by_length(hypotheses[:count], references[:count], [10] * count, [(10, 10)])
        return b.high_ci - b.low_ci

    assert width(50) > 1.5 * width(200) > 2 * width(800) > 0


def test_the_interval_agrees_with_resampling_the_text_itself():
    hypotheses, references = noisy_corpus(40, seed=4, low=8, high=12)
    (b,) = bleu_by_length(hypotheses, references, [9] * 40, [(1, 20)], resamples=2000)
    rng = random.Random(5)
    scores = []
    for _ in range(1000):
        drawn = rng.choices(range(40), k=40)
        scores.append(bleu([hypotheses[i] for i in drawn], [references[i] for i in drawn]))
    low, high = np.percentile(scores, [2.5, 97.5])
    assert (b.low_ci, b.high_ci) == (pytest.approx(low, abs=1.5), pytest.approx(high, abs=1.5))


def test_intervals_repeat_under_a_seed_and_do_not_depend_on_other_bins():
    hypotheses, references = noisy_corpus(60, seed=6)
    lengths = [len(r) for r in references]
    both = bleu_by_length(hypotheses, references, lengths, [(4, 12), (13, 30)], resamples=50)
    (alone,) = bleu_by_length(hypotheses, references, lengths, [(13, 30)], resamples=50)
    assert both[1] == alone
    (other,) = bleu_by_length(hypotheses, references, lengths, [(13, 30)], resamples=50, seed=1)
    assert other.score == alone.score and other.low_ci != alone.low_ci


def test_an_empty_bin_is_kept_and_says_so():
    (empty,) = bleu_by_length([["a"]], [["a"]], [1], [(5, 9)])
    assert empty.count == 0 and math.isnan(empty.score) and math.isnan(empty.low_ci)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lengths": [1, 2]}, "2 lengths for 1 sentences"),
        ({"bins": [(5, 4)]}, r"bin \(5, 4\)"),
        ({"resamples": 0}, "resamples=0"),
        ({"confidence": 95}, "confidence=95"),
    ],
)
def test_bad_arguments_of_bleu_by_length_are_named(change, message):
    arguments = {"hypotheses": [["a"]], "references": [["a"]], "lengths": [1], "bins": [(1, 2)]} | change
    with pytest.raises(ValueError, match=message):
        bleu_by_length(**arguments)


# Alignment error rate

LINKS = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)
SOME_LINKS = LINKS.filter(bool)


def test_a_worked_example():
    """the blue house / la maison bleue, with *the* linked to *maison* as well."""
    found = {(0, 0), (1, 2), (2, 1), (0, 1)}
    sure, possible = {(1, 2), (2, 1)}, {(0, 0)}
    # found: 4; of them 2 are sure and 3 possible: precision 3/4, recall 2/2, error 1 - (2 + 3) / (4 + 2)
    assert alignment(found, sure, possible) == (3 / 4, 1, pytest.approx(1 / 6))
    # with *the*-*la* not allowed: precision 2/4, error 1 - (2 + 2) / (4 + 2)
    assert alignment(found, sure) == (2 / 4, 1, pytest.approx(1 / 3))


@given(SOME_LINKS)
def test_error_is_0_for_the_gold_and_1_for_what_has_nothing_of_it(gold):
    assert alignment_error_rate(gold, gold) == 0
    assert alignment_error_rate({(s + 6, t) for s, t in gold}, gold) == 1
    assert alignment_error_rate(set(), gold) == 1


@given(LINKS, SOME_LINKS, LINKS)
def test_error_lies_between_0_and_1_and_forgives_what_is_possible(found, sure, possible):
    strict, lenient = alignment_error_rate(found, sure), alignment_error_rate(found, sure, possible)
    assert 0 <= lenient <= strict <= 1
    assert lenient == alignment_error_rate(found, sure, possible | sure)


@given(LINKS, SOME_LINKS, LINKS)
def test_error_is_the_same_in_the_other_direction(found, sure, possible):
    turned = ({(t, s) for s, t in links} for links in (found, sure, possible))
    assert alignment(*turned) == pytest.approx(alignment(found, sure, possible), nan_ok=True)


@given(LINKS, SOME_LINKS)
def test_without_possible_links_it_is_one_minus_f1(found, sure):
    shared = len(found & sure)
    assert alignment_error_rate(found, sure) == pytest.approx(1 - 2 * shared / (len(found) + len(sure)))


@given(st.lists(st.tuples(LINKS, SOME_LINKS, LINKS), min_size=1, max_size=4))
def test_over_sentences_counts_are_added_before_dividing(sentences):
    """One corpus of sentences equals one long sentence in which each has its own stretch of words."""

    def shifted(side: int) -> set:
        return {(s + 10 * i, t + 10 * i) for i, one in enumerate(sentences) for s, t in one[side]}

    sides = [[one[side] for one in sentences] for side in range(3)]
    assert alignment(*sides) == pytest.approx(alignment(*map(shifted, range(3))), nan_ok=True)


def test_long_sentences_weigh_more():
    good, bad = {(i, i) for i in range(9)}, {(0, 1)}
    assert alignment_error_rate([good, bad], [good, {(0, 0)}]) == pytest.approx(0.1)


def test_nothing_found_and_nothing_wanted_is_no_number():
    nothing = alignment(set(), set())
    assert math.isnan(nothing.precision) and math.isnan(nothing.recall) and nothing.error_rate == 0


def test_links_of_the_wrong_kind_are_named():
    with pytest.raises(TypeError, match=r"links holds \(0, 0\), a tuple"):
        alignment_error_rate([(0, 0)], {(0, 0)})
    with pytest.raises(TypeError, match="on all sides"):
        alignment_error_rate([{(0, 0)}], {(0, 0)})
    with pytest.raises(ValueError, match="links of 1 sentences, sure links of 2"):
        alignment_error_rate([{(0, 0)}], [{(0, 0)}, set()])


# Links from attention


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_each_target_word_links_to_the_word_it_looks_at_most(kind):
    weights = kind(
        [
            [0.7, 0.2, 0.1, 0.0],  # la -> the
            [0.1, 0.1, 0.8, 0.0],  # maison -> house
            [0.1, 0.2, 0.1, 0.6],  # bleue -> <eos>: a miss
            [0.0, 0.9, 0.0, 0.1],  # <eos>: no word
        ]
    )
    assert links_from_weights(weights, 3, 3) == {(0, 0), (2, 1)}


def test_rows_without_weight_and_missing_end_columns():
    assert links_from_weights(np.zeros((2, 3)), 2, 2) == set()
    assert links_from_weights(np.eye(2), 2, 2) == {(0, 0), (1, 1)}
    assert links_from_weights(np.zeros((1, 1)), 0, 0) == set()


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 3), st.integers(0, 2**31))
def test_padding_never_makes_a_link(source, target, padding, seed):
    weights = np.random.default_rng(seed).dirichlet(np.ones(source + 1), size=target + 1)
    padded = np.pad(weights, ((0, padding), (0, padding)))
    links = links_from_weights(weights, source, target)
    assert links_from_weights(padded, source, target) == links
    assert len(links) == (weights[:target].argmax(1) < source).sum()


def test_weights_of_the_wrong_shape_or_with_nan_are_named():
    with pytest.raises(ValueError, match=r"shape \(2, 3\) are too small for 3 target words"):
        links_from_weights(np.ones((2, 3)), 2, 3)
    with pytest.raises(ValueError, match="NaN"):
        links_from_weights(np.full((2, 3), np.nan), 2, 2)
