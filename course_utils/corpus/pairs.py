"""Sentence pairs, their gold word alignments, and corpora made of them."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

Links = frozenset[tuple[int, int]]


def _transposed(links: Links) -> Links:
    return frozenset((target, source) for source, target in links)


class Pair(NamedTuple):
    """A sentence, its translation and, where known, which words translate which.

    A link is (index of a source word, index of a target word). `links` are the sure ones; `possible` adds
    links that are not wrong either, so that the "possible" set of Och and Ney (2003) is
    `links | possible`. Both are empty where no gold alignment is known.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: Links = frozenset()
    possible: Links = frozenset()

    def swapped(self) -> "Pair":
        """The same pair read in the other direction, links transposed."""
        return Pair(self.target, self.source, _transposed(self.links), _transposed(self.possible))


@dataclass(frozen=True)
class Corpus:
    """Three sets of pairs that share no source sentence, with the text's licence and attribution.

    `languages` are the codes of the source and the target language, such as ("en", "fr").
    """

    name: str
    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]
    licence: str
    attribution: str
    languages: tuple[str, str]

    def swapped(self) -> "Corpus":
        """The same corpus read in the other direction.

        The sets then share no sentence on the side that used to be the source; two source sentences with
        one translation may have been split apart.
        """
        train, valid, test = (
            [pair.swapped() for pair in part] for part in (self.train, self.valid, self.test)
        )
        return replace(self, train=train, valid=valid, test=test, languages=self.languages[::-1])


def split(
    pairs: Iterable[Pair], valid: int, test: int, seed: int
) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """Shuffles pairs and parts them into (train, valid, test) sets that share no source sentence.

    All translations of one source sentence stay together, so `valid` and `test` count different source
    sentences; the rest is for training. Raises ValueError where nothing would be left for it.
    """
    groups: dict[tuple[str, ...], list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(pair.source, []).append(pair)
    sources = list(groups)
    random.Random(seed).shuffle(sources)
    if valid < 0 or test < 0:
        raise ValueError(f"valid={valid} and test={test} must not be negative")
    if valid + test >= len(sources):
        raise ValueError(
            f"valid={valid} and test={test} leave no training pairs: there are {len(sources)} different "
            "source sentences; ask for fewer"
        )
    parts = sources[valid + test :], sources[:valid], sources[valid : valid + test]
    train, held_valid, held_test = ([pair for source in part for pair in groups[source]] for part in parts)
    return train, held_valid, held_test
