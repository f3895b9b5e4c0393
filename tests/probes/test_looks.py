"""Measurements on attention weights: by hand and by their properties."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_utils.corpus import Pair
from course_utils.metrics import links_from_weights
from course_utils.probes import crossed, effective_words, entropy, looks, offsets, share_on

# the blue house sleeps / la maison bleue dort, with <eos> on both sides
PAIR = Pair(
    ("the", "blue", "house", "sleeps"),
    ("la", "maison", "bleue", "dort"),
    frozenset({(0, 0), (2, 1), (1, 2), (3, 3)}),
)
WEIGHTS = np.array(
    [
        [0.5, 0.0, 0.5, 0.0, 0.0],  # la: as much at house as at the (the first of equals is the arg-max)
        [0.0, 0.0, 1.0, 0.0, 0.0],  # maison: at house
        [0.0, 0.25, 0.75, 0.0, 0.0],  # bleue: most at house, the word after blue
        [0.0, 0.0, 0.0, 0.25, 0.75],  # dort: most at <eos>
        [0.0, 0.0, 0.0, 0.0, 1.0],  # <eos>
    ]
)


@st.composite
def attention(draw) -> tuple[np.ndarray, Pair]:
    """Random weights with <eos> on both sides, and a pair with random links."""
    source, target = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    links = draw(st.sets(st.tuples(st.integers(0, source - 1), st.integers(0, target - 1))))
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    weights = rng.dirichlet(np.ones(source + 1), size=target + 1)
    return weights, Pair(("s",) * source, ("t",) * target, frozenset(links))


def test_entropy_of_a_pointer_and_of_an_even_glance():
    assert entropy(np.eye(3)).tolist() == [0, 0, 0]
    for n in (1, 2, 4, 7):
        even = np.full((1, n), 1 / n)
        assert entropy(even) == pytest.approx([math.log2(n)])
        assert effective_words(even) == pytest.approx([n])
    assert entropy(WEIGHTS)[0] == 1


@given(attention())
def test_entropy_agrees_with_torch_and_stays_in_its_bounds(case):
    weights, _ = case
    bits = entropy(weights)
    expected = torch.distributions.Categorical(torch.tensor(weights)).entropy() / math.log(2)
    assert bits == pytest.approx(expected.numpy(), abs=1e-6)
    assert entropy(torch.tensor(weights, dtype=torch.float32)) == pytest.approx(bits, abs=1e-4)
    assert (effective_words(weights) >= 1).all()
    assert (effective_words(weights) <= weights.shape[1] + 1e-9).all()
    assert entropy(np.pad(weights, ((0, 0), (0, 3)))) == pytest.approx(bits)  # padding looks at nothing
    assert entropy(np.stack([weights, weights])) == pytest.approx(np.stack([bits, bits]))


def test_a_row_without_weight_has_no_entropy_and_bad_rows_are_named():
    assert entropy(np.zeros((1, 4))) == [0]
    with pytest.raises(ValueError, match="sums lie between 2 and 2"):
        entropy(np.ones((1, 2)))
    with pytest.raises(ValueError, match=r"smallest weight is -0\.5"):
        entropy(np.array([[1.5, -0.5]]))
    with pytest.raises(ValueError, match="nan"):
        entropy(np.full((1, 2), np.nan))


def test_share_on_gold_links_by_hand():
    share = share_on(WEIGHTS, PAIR.links)
    assert share[:4].tolist() == [0.5, 1, 0.25, 0.25]
    assert math.isnan(share[4])
    assert share_on(WEIGHTS, {(1, 2), (2, 2)})[2] == 1  # two gold words: both count


@given(attention())
def test_share_on_everything_is_everything(case):
    weights, _ = case
    everything = {(s, t) for t in range(weights.shape[0]) for s in range(weights.shape[1])}
    assert share_on(weights, everything) == pytest.approx(1)


def test_looks_by_hand():
    seen = looks([WEIGHTS], [PAIR])
    assert (seen.words, seen.hit, seen.share) == (4, 0.5, 0.5)
    fourths = -(0.25 * math.log2(0.25) + 0.75 * math.log2(0.75))
    assert seen.entropy == pytest.approx((1 + 0 + 2 * fourths) / 4)
    nouns = looks([WEIGHTS, WEIGHTS], [PAIR, PAIR], where=lambda pair, t: pair.target[t] == "maison")
    assert nouns == (2, 1, 1, 0)


def test_looks_at_no_words_is_no_number():
    nothing = looks([WEIGHTS], [PAIR], where=lambda pair, t: False)
    assert nothing.words == 0 and all(map(math.isnan, nothing[1:]))


@given(st.lists(attention(), min_size=1, max_size=3))
def test_hits_are_the_links_that_the_error_rate_finds(cases):
    """`looks` and `links_from_weights` agree on which target words look where they should."""
    weights, pairs = zip(*cases, strict=True)
    seen = looks(weights, pairs)
    hits = 0
    for matrix, pair in cases:
        found = links_from_weights(matrix, len(pair.source), len(pair.target))
        hits += len(found & pair.links)
    if seen.words:
        assert seen.hit * seen.words == pytest.approx(hits)
        assert offsets(weights, pairs)[0] == hits
        assert offsets(weights, pairs).total() == seen.words
    else:
        assert hits == 0


def test_offsets_by_hand():
    # la 0, maison 0, bleue looks one word too far, dort at <eos>, one past the last word
    assert offsets([WEIGHTS], [PAIR]) == {0: 2, 1: 2}
    wide = Pair(PAIR.source, PAIR.target, frozenset({(0, 1), (3, 1)}))
    assert offsets([WEIGHTS], [wide]) == {-1: 1}  # maison looks at 2; of 0 and 3, 3 is nearer


def test_crossed_words_are_those_whose_order_changes():
    assert {PAIR.target[t] for t in crossed(PAIR)} == {"maison", "bleue"}
    assert crossed(PAIR.swapped()) == {1, 2}
    straight = Pair(("a", "b"), ("x", "y"), frozenset({(0, 0), (1, 1)}))
    assert crossed(straight) == frozenset()
    apart = Pair(("a", "b", "c"), ("z", "x"), frozenset({(2, 0), (0, 1)}))
    assert crossed(apart) == frozenset()


def test_words_that_translate_as_a_whole_are_not_crossed():
    """does not see / ne voit pas: *ne* and *pas* are both *does not*."""
    pair = Pair(
        ("does", "not", "see"), ("ne", "voit", "pas"), frozenset({(0, 0), (1, 0), (2, 1), (0, 2), (1, 2)})
    )
    assert crossed(pair) == frozenset()
    doubled = Pair(("a", "b"), ("y", "x", "x"), frozenset({(1, 0), (0, 1), (0, 2)}))
    assert crossed(doubled) == frozenset()


@given(attention())
def test_a_diagonal_walk_never_gets_crossed_words_right_together(case):
    """Of two crossed neighbours, an attention that only moves forward hits at most one."""
    weights, pair = case
    forward = np.zeros_like(weights)
    forward[np.arange(len(weights)), np.sort(weights.argmax(1))] = 1
    words = crossed(pair)
    for t in words:
        if t + 1 in words and (gold := {u: s for s, u in pair.links})[t] > gold[t + 1]:
            assert not (forward[t, gold[t]] and forward[t + 1, gold[t + 1]])


@pytest.mark.parametrize("measure", [looks, offsets])
def test_what_does_not_fit_is_named(measure):
    with pytest.raises(ValueError, match="1 attention matrices for 2 pairs"):
        measure([WEIGHTS], [PAIR, PAIR])
    with pytest.raises(ValueError, match=r"shape \(3, 5\) are too small for 4 target words"):
        measure([WEIGHTS[:3]], [PAIR])
