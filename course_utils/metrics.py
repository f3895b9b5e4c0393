"""How good a translation is (BLEU, chrF) and how close attention comes to a gold word alignment (AER)."""

import math
from collections.abc import Sequence, Set
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from sacrebleu.metrics import BLEU, CHRF

Sentence = str | Sequence[str]
Link = tuple[int, int]

# `force` silences sacrebleu's warning about tokenised text: ours is tokenised on purpose. `effective_order`
# changes the score only where no hypothesis has four words, which BLEU-4 would call 0 even when perfect.
_BLEU = BLEU(tokenize="none", force=True, effective_order=True)
_CHRF = CHRF()


def bleu(hypotheses: Sequence[Sentence], references: Sequence[Sentence]) -> float:
    """Corpus BLEU of tokenised translations, 0 to 100 (Papineni et al. 2002), computed by sacrebleu.

    The tokens are taken as they are, so compare scores only under one tokenisation. Where not one
    hypothesis has four words, only the n-gram orders that occur are counted.

    Args:
        hypotheses: the translations, each a list of tokens or one string with spaces between tokens.
        references: one reference for each of them, in the same order.

    Raises:
        ValueError: there is nothing to score, or the two lists differ in length.
    """
    hypotheses, references = _texts(hypotheses, references)
    return _BLEU.corpus_score(hypotheses, [references]).score


def chrf(hypotheses: Sequence[Sentence], references: Sequence[Sentence]) -> float:
    """Corpus chrF of translations, 0 to 100: the F-score of their character n-grams (Popović 2015).

    Takes and raises what `bleu` does. Spaces are not counted, so tokenisation hardly matters.
    """
    hypotheses, references = _texts(hypotheses, references)
    return _CHRF.corpus_score(hypotheses, [references]).score


def _texts(hypotheses: Sequence[Sentence], references: Sequence[Sentence]) -> tuple[list[str], list[str]]:
    """Both sides as strings, as sacrebleu takes them, after checking that they match."""
    for name, side in (("hypotheses", hypotheses), ("references", references)):
        if isinstance(side, str):
            raise ValueError(f"{name} is one string; give a list of sentences, even for a single one")
    if len(hypotheses) != len(references):
        raise ValueError(
            f"{len(hypotheses)} hypotheses for {len(references)} references; give one reference for each"
        )
    if not len(hypotheses):
        raise ValueError("there are no sentences to score; give at least one hypothesis and its reference")
    return [_text(sentence) for sentence in hypotheses], [_text(sentence) for sentence in references]


def _text(sentence: Sentence) -> str:
    return sentence if isinstance(sentence, str) else " ".join(sentence)


class LengthBin(NamedTuple):
    """BLEU of the sentences of `low` to `high` tokens (both included), with its confidence interval.

    A bin that no sentence falls into has count 0 and NaN for its numbers.
    """

    low: int
    high: int
    count: int
    score: float
    low_ci: float
    high_ci: float


def bleu_by_length(
    hypotheses: Sequence[Sentence],
    references: Sequence[Sentence],
    lengths: Sequence[int],
    bins: Sequence[tuple[int, int]],
    *,
    resamples: int = 500,
    confidence: float = 0.95,
    seed: int = 0,
) -> list[LengthBin]:
    """Corpus BLEU of each length bin, with percentile bootstrap intervals (Koehn 2004).

    Each resample draws as many sentences as the bin has, with replacement, and adds up the n-gram counts
    that were taken once for each sentence. Under one seed, two systems on one test set are resampled alike.

    Args:
        hypotheses, references: as in `bleu`.
        lengths: the length that decides on a sentence's bin, usually its number of source tokens.
        bins: (low, high) token counts, both ends included; sentences outside all of them are left out.
        resamples: bootstrap resamples of each bin.
        confidence: the share of the resampled scores that the interval spans.
        seed: of the resampling.

    Returns:
        One LengthBin for each of `bins`, in their order.

    Raises:
        ValueError: the lists differ in length or are empty, a bin ends before it starts, or `resamples` or
            `confidence` are out of range.
    """
    hypotheses, references = _texts(hypotheses, references)
    if len(lengths) != len(hypotheses):
        raise ValueError(f"{len(lengths)} lengths for {len(hypotheses)} sentences; give one length for each")
    if resamples < 1 or not 0 < confidence < 1:
        raise ValueError(
            f"resamples={resamples} must be at least 1 and confidence={confidence} between 0 and 1"
        )
    for low, high in bins:
        if not 0 <= low <= high:
            raise ValueError(f"bin ({low}, {high}) must be (low, high) with 0 <= low <= high")
    lengths = np.asarray(lengths)
    counts = np.array([_ngram_counts(*pair) for pair in zip(hypotheses, references, strict=True)])
    tail = 50 * (1 - confidence)
    result = []
    for low, high in bins:
        inside = counts[(lengths >= low) & (lengths <= high)]
        if not len(inside):
            result.append(LengthBin(low, high, 0, math.nan, math.nan, math.nan))
            continue
        draws = np.random.default_rng([seed, low, high]).multinomial(
            len(inside), np.full(len(inside), 1 / len(inside)), size=resamples
        )
        scores = [_bleu_of_counts(total) for total in draws @ inside]
        low_ci, high_ci = map(float, np.percentile(scores, [tail, 100 - tail]))
        result.append(LengthBin(low, high, len(inside), _bleu_of_counts(inside.sum(0)), low_ci, high_ci))
    return result


def _ngram_counts(hypothesis: str, reference: str) -> list[int]:
    """What BLEU adds up over sentences: two lengths, then the matched and the total n-grams of each order."""
    score = _BLEU.sentence_score(hypothesis, [reference])
    return [score.sys_len, score.ref_len, *score.counts, *score.totals]


def _bleu_of_counts(counts: np.ndarray) -> float:
    length, reference_length, *ngrams = counts.tolist()
    correct, total = ngrams[: _BLEU.max_ngram_order], ngrams[_BLEU.max_ngram_order :]
    return BLEU.compute_bleu(
        correct,
        total,
        length,
        reference_length,
        smooth_method=_BLEU.smooth_method,
        effective_order=_BLEU.effective_order,
    ).score


class Alignment(NamedTuple):
    """How word links agree with gold ones.

    Precision without links, and recall without sure ones, are NaN. Where there is neither, nothing is wrong:
    the error rate is 0.
    """

    precision: float
    recall: float
    error_rate: float


def alignment(
    links: Set[Link] | Sequence[Set[Link]],
    sure: Set[Link] | Sequence[Set[Link]],
    possible: Set[Link] | Sequence[Set[Link]] | None = None,
) -> Alignment:
    """Precision, recall and error rate of word links A against sure links S and possible links P.

    From Och and Ney (2003, "A systematic comparison of various statistical alignment models", on evaluation):

        precision = |A & P| / |A|        recall = |A & S| / |S|
        error rate = 1 - (|A & S| + |A & P|) / (|A| + |S|)

    A link that is only possible may be found without harm and missed without harm. Over several sentences
    the counts are added up before dividing, so that long sentences weigh more.

    Args:
        links: a set of (source index, target index), or a list of such sets, one a sentence.
        sure: the gold links of the same sentences.
        possible: links that are not wrong; a sure link is always possible as well. None: only those.

    Raises:
        TypeError: a mix of one sentence and lists of sentences.
        ValueError: the lists differ in length.
    """
    possible = sure if possible is None else possible
    found, gold = _sentences(links, "links"), _sentences(sure, "sure")
    allowed = _sentences(possible, "possible")
    if not isinstance(links, Set) == isinstance(sure, Set) == isinstance(possible, Set):
        raise TypeError("give sets of links (one sentence) on all sides, or lists of sets on all sides")
    if not len(found) == len(gold) == len(allowed):
        raise ValueError(
            f"links of {len(found)} sentences, sure links of {len(gold)}, possible links of {len(allowed)}; "
            "give one set a sentence on every side"
        )
    in_sure = sum(len(a & s) for a, s in zip(found, gold, strict=True))
    in_possible = sum(len(a & (p | s)) for a, s, p in zip(found, gold, allowed, strict=True))
    claimed, wanted = sum(map(len, found)), sum(map(len, gold))
    return Alignment(
        precision=_ratio(in_possible, claimed),
        recall=_ratio(in_sure, wanted),
        error_rate=1 - _ratio(in_sure + in_possible, claimed + wanted) if claimed + wanted else 0.0,
    )


def alignment_error_rate(
    links: Set[Link] | Sequence[Set[Link]],
    sure: Set[Link] | Sequence[Set[Link]],
    possible: Set[Link] | Sequence[Set[Link]] | None = None,
) -> float:
    """The alignment error rate, from 0 (agrees with the gold) to 1: the last number of `alignment`."""
    return alignment(links, sure, possible).error_rate


def _sentences(side: Set[Link] | Sequence[Set[Link]], name: str) -> list[Set[Link]]:
    if isinstance(side, Set):
        return [side]
    for sentence in side:
        if not isinstance(sentence, Set):
            raise TypeError(
                f"{name} holds {sentence!r}, a {type(sentence).__name__}; give a set of (source, target) "
                "indices for one sentence, or a list of such sets"
            )
    return list(side)


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


def links_from_weights(
    weights: Float[np.ndarray, "target source"], source_length: int, target_length: int
) -> set[Link]:
    """Hard links from soft attention: each target word is linked to the source word it looks at most.

    A target word that looks most at the end of the source (<eos>), or at nothing, gets no link, so that its
    gold links count as missed. The row of the target's <eos> is left out: it stands for no word.

    Args:
        weights: one row a target word; the columns are the source words, then <eos> and padding, if any.
            An array or a tensor.
        source_length: source words, without <eos>.
        target_length: target words, without <eos>.

    Returns:
        A set of (source index, target index).

    Raises:
        ValueError: `weights` is not a matrix, has too few rows or columns, or is not finite.
    """
    rows = word_weights(weights, source_length, target_length)
    if not rows.size:
        return set()
    looked_at = rows.argmax(1)
    return {
        (int(source), target)
        for target, source in enumerate(looked_at)
        if source < source_length and rows[target, source] > 0
    }


def word_weights(
    weights: Float[np.ndarray, "target source"], source_length: int, target_length: int
) -> Float[np.ndarray, "words places"]:
    """The rows of the target's words over the source's words and, where it has a column, its <eos>.

    Takes and raises what `links_from_weights` does.
    """
    weights = as_array(weights)
    if weights.ndim != 2 or weights.shape[0] < target_length or weights.shape[1] < source_length:
        raise ValueError(
            f"weights of shape {weights.shape} are too small for {target_length} target words (rows) and "
            f"{source_length} source words (columns); the order is (target, source)"
        )
    rows = weights[:target_length, : source_length + 1]
    if not np.isfinite(rows).all():
        raise ValueError("the weights hold NaN or infinite values; look for a masked row in the softmax")
    return rows


def as_array(weights) -> np.ndarray:
    """An array of float64 out of an array, or a tensor on any device and of any precision."""
    if hasattr(weights, "detach"):
        weights = weights.detach().cpu().double()
    return np.asarray(weights, dtype=np.float64)
