"""Phrases in two languages at once: two orders of words, held together by the ideas that the words express.

A `Phrase` keeps its English and its French words. Each word carries the ideas it expresses, so phrases can
be put together in any order, and the gold links are read off at the end: words of one idea are linked,
surely, or possibly where one of the two expresses the idea only loosely.
"""

import itertools
from functools import cache

from course_utils.corpus.lexicon import begins_with_vowel
from course_utils.corpus.pairs import Pair

Ideas = tuple[int, ...]
Word = tuple[str, Ideas, Ideas]  # the text, the ideas it surely expresses, those it only helps to express
Words = tuple[Word, ...]


class Phrase:
    """The words of a phrase in English and in French, each side in its own order."""

    __slots__ = ("english", "french")

    def __init__(self, english: Words, french: Words) -> None:
        self.english = english
        self.french = french

    def __add__(self, other: "Phrase") -> "Phrase":
        """One after the other on both sides."""
        return Phrase(self.english + other.english, self.french + other.french)

    def crossed(self, other: "Phrase") -> "Phrase":
        """One after the other in English, the other way round in French: blue + house, maison + bleue."""
        return Phrase(self.english + other.english, other.french + self.french)

    @property
    def size(self) -> int:
        """The number of English words."""
        return len(self.english)


EMPTY = Phrase((), ())

new_idea = itertools.count().__next__


@cache
def _parsed(text: str) -> list[tuple[str, bool]]:
    return [(token.lstrip("~"), token.startswith("~")) for token in text.split()]


def _words(text: str, idea: Ideas) -> Words:
    return tuple([(token, (), idea) if loose else (token, idea, ()) for token, loose in _parsed(text)])


def phrase(english: str, french: str) -> Phrase:
    """A phrase that expresses one new idea; words marked with a tilde express it loosely: "près ~de"."""
    idea = (new_idea(),)
    if " " not in english and " " not in french:  # the usual case, and the quick one
        return Phrase(((english, idea, ()),), ((french, idea, ()),))
    return Phrase(_words(english, idea), _words(french, idea))


_CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
_BEFORE_VOWEL = {
    **{"le": "l'", "la": "l'", "de": "d'", "ne": "n'", "que": "qu'", "je": "j'", "me": "m'"},
    **{"ce": "cet", "ma": "mon", "sa": "son"},
}
_starts_with_vowel = cache(begins_with_vowel)


def spell_french(words: Words) -> list[Word]:
    """Contracts and elides, from the right, so that the next word is always final: de l'hôtel, du jardin."""
    spelled: list[Word] = []
    following = "."
    for text, sure, loose in reversed(words):
        if (text, following) in _CONTRACTED:
            text = _CONTRACTED[text, following]
            _, article_sure, article_loose = spelled.pop()
            sure, loose = sure + article_sure, loose + article_loose
        elif text in _BEFORE_VOWEL and _starts_with_vowel(following):
            text = _BEFORE_VOWEL[text]
        elif text == "si" and following in ("il", "ils"):
            text = "s'"
        spelled.append((text, sure, loose))
        following = text
    return spelled[::-1]


def spell_english(words: Words) -> list[Word]:
    """Turns "a" into "an" before a vowel sound."""
    spelled = list(words)
    for place, (text, sure, loose) in enumerate(words):
        if text == "a":
            following = words[place + 1][0]
            if following[0] in "aeiou" or following == "honest":
                spelled[place] = ("an", sure, loose)
    return spelled


def _expressed(words: list[Word], how: int) -> dict[int, list[int]]:
    """The places of the words that express each idea; `how` is 1 for surely, 2 for loosely."""
    places: dict[int, list[int]] = {}
    for place, word in enumerate(words):
        for idea in word[how]:
            if idea in places:
                places[idea].append(place)
            else:
                places[idea] = [place]
    return places


def _linked(places: dict[int, list[int]], words: list[Word], how: int) -> set[tuple[int, int]]:
    """Links from the places of ideas to the words that express them."""
    return {
        (source, target)
        for target, word in enumerate(words)
        for idea in word[how]
        for source in places.get(idea, ())
    }


def finished(phrase: Phrase) -> Pair:
    """The pair of sentences that a phrase spells, with the links that its ideas make."""
    english, french = spell_english(phrase.english), spell_french(phrase.french)
    surely, loosely = _expressed(english, 1), _expressed(english, 2)
    links = _linked(surely, french, 1)
    possible = _linked(surely, french, 2)
    if loosely:
        possible |= _linked(loosely, french, 1) | _linked(loosely, french, 2)
    return Pair(
        tuple([word[0] for word in english]),
        tuple([word[0] for word in french]),
        frozenset(links),
        frozenset(possible - links),
    )
