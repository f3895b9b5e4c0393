"""What a model looks at: measurements on attention weights, as plain numbers.

Weights are one array a sentence, (target, source), as `decoding.attend` returns them: a row a target word,
a column a source word. A last row and a last column for <eos> may follow. Links are (source index, target
index), as in `Pair.links`.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from course_utils.corpus import Pair
from course_utils.metrics import Link, as_array, word_weights

Weights = Float[np.ndarray, "target source"]


def entropy(weights: Float[np.ndarray, "*rows source"]) -> Float[np.ndarray, "*rows"]:
    """The entropy of each row of attention weights in bits: 0 for a pointer, log2(n) for n equal weights.

    A row without any weight (nothing to attend to) has entropy 0. Raises ValueError for a row that neither
    sums to 1 (within 0.01, the precision of bf16) nor is empty, or that holds a negative weight.
    """
    weights = as_array(weights)
    sums = weights.sum(-1)
    if (weights < 0).any() or not (np.isclose(sums, 1, atol=1e-2) | (sums == 0)).all():
        raise ValueError(
            f"attention weights are 0 or more and each row sums to 1, but here the smallest weight is "
            f"{weights.min():.3g} and the sums lie between {sums.min():.3g} and {sums.max():.3g}"
        )
    positive = np.where(weights > 0, weights, 1)  # 0 log 0 counts as 0
    return np.abs((positive * np.log2(positive)).sum(-1))


def effective_words(weights: Float[np.ndarray, "*rows source"]) -> Float[np.ndarray, "*rows"]:
    """How many source words each row looks at: 2 to the power of its entropy (the perplexity of the row)."""
    return 2 ** entropy(weights)


def share_on(weights: Weights, links: Set[Link]) -> Float[np.ndarray, " target"]:
    """The share of each target word's attention that lies on its gold source words.

    NaN for a target word without a link: it has no right place to look. Raises IndexError for a link
    outside the weights.
    """
    weights = as_array(weights)
    share = np.full(len(weights), np.nan)
    for target, sources in _gold(links).items():
        share[target] = weights[target, sources].sum()
    return share


class Looks(NamedTuple):
    """Where target words look, on average; every number but `words` is NaN where there are no such words.

    Attributes:
        words: how many target words were looked at: those with a gold link.
        hit: the share of them that look most at one of their gold source words.
        share: the mean share of their attention on their gold source words.
        entropy: their mean entropy, in bits.
    """

    words: int
    hit: float
    share: float
    entropy: float


def looks(
    weights: Sequence[Weights],
    pairs: Sequence[Pair],
    where: Callable[[Pair, int], bool] = lambda pair, target: True,
) -> Looks:
    """Measures over many sentences whether target words look at the source words that they translate.

    Only target words with a sure gold link count, <eos> does not. `where(pair, target index)` chooses among
    them: `lambda pair, t: pair.target[t] in nouns`, say, or the words of `crossed(pair)`. A word that looks
    most at <eos> has missed.

    Raises:
        ValueError: there is not one matrix for each pair, or one is too small for its pair or not finite.
    """
    hits, shares, entropies = [], [], []
    for matrix, pair in _words(weights, pairs):
        bits, share = entropy(matrix), share_on(matrix, pair.links)
        for target, sources in _gold(pair.links).items():
            if where(pair, target):
                most = int(matrix[target].argmax())
                hits.append(most in sources and matrix[target, most] > 0)
                shares.append(share[target])
                entropies.append(bits[target])
    if not hits:
        return Looks(0, math.nan, math.nan, math.nan)
    return Looks(len(hits), *(float(np.mean(values)) for values in (hits, shares, entropies)))


def crossed(pair: Pair) -> frozenset[int]:
    """Neighbours in the target whose source words are neighbours too, in the opposite order.

    Blue house / maison bleue: both words of "maison bleue". Here attention has to leave the diagonal, so no
    model gets these words right by walking along the sentence. Only words with exactly one sure link to a
    word that has no other count, which leaves out phrases that translate as a whole.
    """
    gold = _gold(pair.links)
    often = Counter(source for source, _ in pair.links)
    single = {t: s[0] for t, s in gold.items() if len(s) == 1 and often[s[0]] == 1}
    swaps = [(t, t + 1) for t in single if t + 1 in single and single[t] - single[t + 1] == 1]
    return frozenset(t for swap in swaps for t in swap)


def offsets(weights: Sequence[Weights], pairs: Sequence[Pair]) -> Counter[int]:
    """How far target words look past the source words they translate: {offset: number of target words}.

    The offset is the place looked at most minus the nearest gold place: 0 is a hit, 1 the next word. Target
    words without a sure link do not count; <eos> is the place after the last source word. Raises as `looks`.
    """
    counts: Counter[int] = Counter()
    for matrix, pair in _words(weights, pairs):
        for target, sources in _gold(pair.links).items():
            most = int(matrix[target].argmax())
            counts[min((most - source for source in sources), key=abs)] += 1
    return counts


def _words(weights: Sequence[Weights], pairs: Sequence[Pair]) -> Iterator[tuple[Weights, Pair]]:
    """The rows of each pair's target words, with the pair."""
    if len(weights) != len(pairs):
        raise ValueError(f"{len(weights)} attention matrices for {len(pairs)} pairs; give one for each")
    for matrix, pair in zip(weights, pairs, strict=True):
        yield word_weights(matrix, len(pair.source), len(pair.target)), pair


def _gold(links: Set[Link]) -> dict[int, list[int]]:
    """The gold source words of each target word that has any, both in order."""
    gold: dict[int, list[int]] = {}
    for target, source in sorted((target, source) for source, target in links):
        gold.setdefault(target, []).append(source)
    return gold
