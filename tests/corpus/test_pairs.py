"""Pairs, their swapping, and splits without leaks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_utils.corpus.pairs import Corpus, Pair, split

HOUSE = Pair(
    ("the", "blue", "house"),
    ("la", "maison", "bleue"),
    links=frozenset({(0, 0), (1, 2), (2, 1)}),
    possible=frozenset({(0, 1)}),
)

words = st.tuples(st.sampled_from("abcde"), st.sampled_from("abcde"))
pair_lists = st.lists(st.builds(Pair, words, words), max_size=25)


def test_swapping_transposes_the_links():
    swapped = HOUSE.swapped()
    assert swapped.source == HOUSE.target and swapped.target == HOUSE.source
    assert swapped.links == {(0, 0), (2, 1), (1, 2)} and swapped.possible == {(1, 0)}
    assert swapped.swapped() == HOUSE


def test_a_swapped_corpus_swaps_pairs_and_languages():
    corpus = Corpus("one", [HOUSE], [], [], "MIT", "nobody", ("en", "fr"))
    swapped = corpus.swapped()
    assert swapped.train == [HOUSE.swapped()] and swapped.languages == ("fr", "en")
    assert swapped.swapped() == corpus


@given(pair_lists, st.integers(0, 5), st.integers(0, 5), st.integers(0, 3))
def test_a_split_keeps_every_pair_and_parts_the_sources(pairs, valid, test, seed):
    sources = {pair.source for pair in pairs}
    if valid + test >= len(sources):
        with pytest.raises(ValueError, match="leave no training pairs"):
            split(pairs, valid, test, seed)
        return
    parts = split(pairs, valid, test, seed)
    assert sorted(pair for part in parts for pair in part) == sorted(pairs)
    in_train, in_valid, in_test = ({pair.source for pair in part} for part in parts)
    assert len(in_valid) == valid and len(in_test) == test
    assert not in_train & in_valid and not in_train & in_test and not in_valid & in_test
    assert parts == split(pairs, valid, test, seed)


def test_a_split_depends_on_its_seed_and_refuses_negative_sizes():
    pairs = [Pair((str(number),), ("x",)) for number in range(50)]
    assert split(pairs, 5, 5, seed=0) != split(pairs, 5, 5, seed=1)
    with pytest.raises(ValueError, match="negative"):
        split(pairs, -1, 5, seed=0)
