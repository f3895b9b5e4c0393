"""A translator of a few words whose attention is known: most of it lies on the word that is translated."""

import numpy as np

from course_utils.corpus import Pair
from course_utils.decoding import Translation

LEXICON = {"the": "la", "blue": "bleue", "house": "maison", "small": "petite", "and": "et"}
PAIR = Pair(("the", "blue", "house"), ("la", "maison", "bleue"), frozenset({(0, 0), (2, 1), (1, 2)}))


def translate(tokens):
    """The word blue comes last, the rest stays in order; 0.8 of a word's weight is on its source word."""
    order = sorted(range(len(tokens)), key=lambda s: (tokens[s] == "blue", s))
    weights = np.full((len(order) + 1, len(tokens) + 1), 0.2 / len(tokens))
    weights[np.arange(len(order) + 1), [*order, len(tokens)]] = 0.8
    return Translation(
        tokens=[LEXICON.get(tokens[s], "<unk>") for s in order],
        source=[token if token in LEXICON else "<unk>" for token in tokens],
        unknown=[token for token in tokens if token not in LEXICON],
        score=0.0,
        weights=weights,
    )
