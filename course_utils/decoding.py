"""Translation with a trained model: greedy and beam search, and the attention weights of given pairs.

Works with every model that has `forward`, `encode`, `start` and `step` as in course_utils.models.seq2seq.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from course_utils.corpus import BOS, EOS, PAD, Batch, Pair, Vocabulary, make_batch


class Found(NamedTuple):
    """What a search has found, one sentence a row."""

    tokens: Int[Tensor, "batch target"]  # the words and the EOS (if there was one by max_length), then PAD
    lengths: Int[Tensor, "batch"]  # how many tokens are not PAD
    scores: Float[Tensor, "batch"]  # log-probability, the sum over the tokens
    weights: Float[Tensor, "batch target source"] | None  # zeros on padding; None without attention


@dataclass(frozen=True)
class Translation:
    """One translated sentence."""

    tokens: list[str]  # without <eos>
    source: list[str]  # with <unk> in the place of unknown words
    unknown: list[str]  # the source words that the model does not know
    score: float  # log-probability, the sum over the tokens (natural logarithm)
    weights: (
        Float[np.ndarray, "target source"] | None
    )  # with <eos>: a column always, a row if it was produced


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout and gradients; afterwards each module is in the mode that it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def greedy(
    model: nn.Module,
    source: Int[Tensor, "batch source"],
    source_mask: Bool[Tensor, "batch source"],
    max_length: int | Int[Tensor, "batch"],
) -> Found:
    """Takes the most probable word at each step: a beam of width 1."""
    return beam_search(model, source, source_mask, 1, max_length)


def beam_search(
    model: nn.Module,
    source: Int[Tensor, "batch source"],
    source_mask: Bool[Tensor, "batch source"],
    width: int,
    max_length: int | Int[Tensor, "batch"],
    length_penalty: float = 1.0,
) -> Found:
    """Keeps the `width` most probable beginnings at each step, and finds the best sentence that ended.

    A sentence that ends leaves the beam and takes its place with it (Sutskever et al. 2014, section 3.2).
    Sentences that ended are compared by log-probability / length ** length_penalty, where the length counts
    the EOS: 0 compares probabilities, 1 the mean log-probability of a token. A row is done when nothing left
    in its beam can win any more. PAD and BOS are never chosen.

    Args:
        source: word numbers, each row ending with EOS and then PAD.
        source_mask: True = real token.
        width: the number of beginnings kept, 1 or more.
        max_length: the most tokens a sentence may have, its EOS included; one number, or one a row. Where
            nothing ended by then, the most probable beginning is the answer.
        length_penalty: 0 or more.

    Raises:
        ValueError: no sentence, a width or a length below 1, or a negative length_penalty.
    """
    limit = torch.as_tensor(max_length, device=source.device).expand(len(source))  # (batch,)
    if width < 1 or length_penalty < 0 or not len(source) or int(limit.min()) < 1:
        raise ValueError(
            f"width is {width} and max_length {max_length}, which have to be 1 or more; length_penalty is "
            f"{length_penalty}, which has to be 0 or more; and there are {len(source)} sentences, at least 1 "
            "is needed."
        )
    with _evaluating(model):
        tokens = _search(model, source, source_mask, width, limit, length_penalty)
        return _read(model, source, source_mask, tokens)


def _search(
    model: nn.Module, source: Tensor, source_mask: Tensor, width: int, limit: Tensor, length_penalty: float
) -> Int[Tensor, "batch target"]:
    """The tokens of the best sentence of each row, then PAD."""
    batch, device, longest = len(source), source.device, int(limit.max())
    row = torch.arange(batch, device=device)[:, None]  # (batch, 1)

    memory = model.encode(source, source_mask)
    state = _repeat(model.start(memory), width)
    memory = _repeat(memory, width)  # alike for all beams of a row, so it never has to be reordered
    token = torch.full((batch * width,), BOS, device=device)
    beams = torch.full((batch, width, longest), PAD, device=device)  # the beginnings
    totals = torch.full((batch, width), -torch.inf, device=device)  # their log-probabilities
    totals[:, 0] = 0.0  # all are alike before the first word, so only one counts; -inf is an empty place
    best = torch.full((batch, longest), PAD, device=device)  # the best sentence that ended, and its score
    best_score = torch.full((batch,), -torch.inf, device=device)

    for length in range(1, longest + 1):
        logits, state, _ = model.step(token, state, memory)
        steps = torch.log_softmax(logits, dim=-1)  # (batch * width, vocabulary)
        steps[:, [PAD, BOS]] = -torch.inf
        candidates = (totals[:, :, None] + steps.view(batch, width, -1)).flatten(1)
        totals, index = candidates.topk(width, dim=1)  # (batch, width)
        parent, word = index // steps.shape[1], index % steps.shape[1]
        beams = beams[row, parent]
        beams[:, :, length - 1] = word

        alive, at_limit = totals > -torch.inf, (limit == length)[:, None]
        ended = alive & (word == EOS)
        nothing = (best_score == -torch.inf)[:, None] & ~ended.any(dim=1, keepdim=True)
        closing = ended | (alive & at_limit & nothing)
        score, place = totals.masked_fill(~closing, -torch.inf).max(dim=1)
        score = score / length**length_penalty
        better = score > best_score
        best = torch.where(better[:, None], beams[row[:, 0], place], best)
        best_score = torch.where(better, score, best_score)

        totals = totals.masked_fill(ended | at_limit, -torch.inf)
        # Log-probabilities only fall: a beam can hope for no more than its total now, at the greatest length.
        hope = totals.max(dim=1).values / limit**length_penalty
        totals = totals.masked_fill((best_score >= hope)[:, None], -torch.inf)
        if bool((totals == -torch.inf).all()):
            break
        token = word.flatten()
        if width > 1:
            state = _select(state, (row * width + parent).flatten())
    return best


def _repeat(tree: tuple, width: int) -> tuple:
    """Each row `width` times, one after another, in all tensors of a memory or state."""
    return tree_map(lambda x: x.repeat_interleave(width, dim=0), tree) if width > 1 else tree


def _select(tree: tuple, index: Tensor) -> tuple:
    """The rows of these numbers, in all tensors of a memory or state."""
    return tree_map(lambda x: x.index_select(0, index), tree)


def _read(model: nn.Module, source: Tensor, source_mask: Tensor, tokens: Tensor) -> Found:
    """Reads the tokens once more, all steps at once, for their log-probability and attention weights."""
    real = tokens != PAD
    lengths = real.sum(dim=1)
    tokens, real = tokens[:, : int(lengths.max())], real[:, : int(lengths.max())]
    before = torch.cat([torch.full_like(tokens[:, :1], BOS), tokens[:, :-1]], dim=1)
    output = model(source, source_mask, before)
    steps = torch.log_softmax(output.logits, dim=-1).gather(2, tokens[:, :, None]).squeeze(2)
    weights = None if output.weights is None else output.weights * real[:, :, None]
    return Found(tokens, lengths, (steps * real).sum(dim=1), weights)


def translate(
    model: nn.Module,
    sentences: Sequence[Sequence[str]],
    source_vocabulary: Vocabulary,
    target_vocabulary: Vocabulary,
    *,
    beam: int = 1,
    max_length: int | None = None,
    length_penalty: float = 1.0,
    batch_tokens: int = 8192,
) -> list[Translation]:
    """Translates tokenised sentences, in batches of like lengths, and returns them in the order given.

    Unknown source words are read as <unk>, and each translation names its own.

    Args:
        model: any translation model of the course, on any device; its training mode is left as it was.
        sentences: lists of words, as the corpus's `tokenise` makes them.
        beam: 1 for greedy search, more for a beam search of this width.
        max_length: the most tokens of a translation, its <eos> included; by default 10 more than twice the
            number of words of its source.
        length_penalty: see `beam_search`.
        batch_tokens: the most source tokens, padding and beams included, searched at once.

    Raises:
        TypeError: a sentence is a string, not a list of words.
        ValueError: `beam`, `max_length` or `length_penalty` is too small, see `beam_search`.
    """
    for sentence in sentences:
        if isinstance(sentence, str):
            raise TypeError(f"{sentence!r} is a string; tokenise it first: a sentence is a list of words.")
    pairs = [Pair(tuple(sentence), ()) for sentence in sentences]
    result: dict[int, Translation] = {}
    tokens_a_beam = batch_tokens // max(beam, 1)
    for index, batch in _batches(model, pairs, source_vocabulary, target_vocabulary, tokens_a_beam):
        limit = 2 * batch.source_mask.sum(dim=1) + 8 if max_length is None else max_length
        found = beam_search(model, batch.source, batch.source_mask, beam, limit, length_penalty)
        rows = zip(
            index,
            batch.pairs,
            found.tokens.tolist(),
            found.scores.tolist(),
            _trim(found.weights, found.lengths, batch.source_mask),
            strict=True,
        )
        for i, pair, tokens, score, weights in rows:
            result[i] = Translation(
                tokens=target_vocabulary.decode(tokens),
                source=[word if word in source_vocabulary else "<unk>" for word in pair.source],
                unknown=source_vocabulary.unknown(pair.source),
                score=score,
                weights=weights,
            )
    return [result[i] for i in range(len(pairs))]


def attend(
    model: nn.Module,
    pairs: Sequence[Pair],
    source_vocabulary: Vocabulary,
    target_vocabulary: Vocabulary,
    *,
    batch_tokens: int = 8192,
) -> list[Float[np.ndarray, "target source"]]:
    """The attention weights of a model that reads the gold translations, in the order of the pairs.

    Each array has a row for each target word and the <eos>, and a column for each source word and the <eos>.

    Raises:
        ValueError: the model has no attention.
    """
    result: dict[int, np.ndarray] = {}
    for index, batch in _batches(model, pairs, source_vocabulary, target_vocabulary, batch_tokens):
        with _evaluating(model):
            weights = model(batch.source, batch.source_mask, batch.target_in).weights
        if weights is None:
            raise ValueError("The model was built without attention, so it has no weights to show.")
        result |= zip(index, _trim(weights, batch.target_mask.sum(dim=1), batch.source_mask), strict=True)
    return [result[i] for i in range(len(pairs))]


def _batches(
    model: nn.Module,
    pairs: Sequence[Pair],
    source_vocabulary: Vocabulary,
    target_vocabulary: Vocabulary,
    batch_tokens: int,
) -> Iterator[tuple[list[int], Batch]]:
    """Batches of like source lengths on the model's device, each with the places of its pairs."""
    device = next(model.parameters()).device
    order = sorted(range(len(pairs)), key=lambda i: -len(pairs[i].source))
    while order:
        rows = max(1, batch_tokens // (len(pairs[order[0]].source) + 1))
        index, order = order[:rows], order[rows:]
        batch = make_batch([pairs[i] for i in index], source_vocabulary, target_vocabulary)
        yield index, batch.to(device)


def _trim(weights: Tensor | None, lengths: Tensor, source_mask: Tensor) -> list[np.ndarray] | list[None]:
    """The weights of each row without its padding."""
    if weights is None:
        return [None] * len(source_mask)
    arrays = weights.float().cpu().numpy()
    sizes = zip(arrays, lengths.tolist(), source_mask.sum(dim=1).tolist(), strict=True)
    return [array[:target, :source].copy() for array, target, source in sizes]
