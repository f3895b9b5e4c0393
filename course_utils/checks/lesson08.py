"""The exercises of lesson 08, after the Transformer, and how they go wrong.

Sources such as "bt-03" name the public bug report or thread that a mistake or a variant was first seen in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator, default_rng

from course_utils.checks.draws import normal, padded, sizes
from course_utils.checks.engine import Exercise, Finding, Mistake, Part, Variant, numeric_gradient
from course_utils.questions import find
from course_utils.questions.asking import (
    Inputs,
    Outputs,
)
from course_utils.questions.lesson08 import IGNORED, SPANS, STATE

INF = float("inf")


def _named(mistakes: Sequence[Mistake], name: str, output: str = "") -> Finding:
    """The finding of a mistake that shows in what an answer gave, whatever its code looks like."""
    (mistake,) = [mistake for mistake in mistakes if mistake.name == name]
    return Finding(mistake.message, mistake.look, mistake.name, output)


# --- 08.1 BERT's corruption ---------------------------------------------------------------------------------
#
# Every answer draws in its own way, so nothing here compares single words: a case is judged by what must hold
# for every draw, and the large ones by their shares, which may be off by five standard deviations.

MANY = 2000  # words from which on shares are judged


def _corruption_reference(inputs: Inputs) -> Outputs:
    """What is known of every draw: the labels put back where they belong give the text."""
    return {"restored": inputs["tokens"].astype(np.float64)}


def _text(rng: Generator, batch: int, length: int, vocabulary: int, rate: float) -> Inputs:
    """Sentences whose words are not numbered 0, 1, 2 ..., with special words at their ends and as padding."""
    numbers = rng.permutation(vocabulary)
    special, words = numbers[:4], np.sort(numbers[4:])
    tokens = rng.choice(words, (batch, length))
    tokens[:, 0] = special[0]
    for row, end in enumerate(rng.integers(length // 2, length, batch)):
        tokens[row, end] = special[1]
        tokens[row, end + 1 :] = special[2]
    return {
        "tokens": tokens,
        "words": words,
        "mask_id": int(special[3]),
        "rate": rate,
        "seed": int(numbers[0]),
    }


def _draw_corruption(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 81])
    return [
        _text(rng, 1, 8, 12, 0.5),
        _text(rng, 4, 12, 20, 0.5),
        _text(rng, 40, 300, 60, 0.15),
        _text(rng, 40, 150, 60, 0.4),
    ]


def _parted(inputs: Inputs, outputs: Outputs) -> tuple[np.ndarray, ...]:
    """tokens, corrupted, labels, which were chosen, which could be."""
    tokens, corrupted, labels = inputs["tokens"], outputs["corrupted"], outputs["labels"]
    return tokens, corrupted, labels, labels != IGNORED, np.isin(tokens, inputs["words"])


def _about(share: float, wanted: float, count: int) -> bool:
    return abs(share - wanted) <= 5 * (max(wanted * (1 - wanted), 1e-3) / count) ** 0.5


def _labels_hold_the_chosen(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    tokens, corrupted, labels, chosen, _ = _parted(inputs, outputs)
    others = labels[labels != tokens]
    if (labels == tokens).all():
        return _named(CORRUPTION_MISTAKES, "labels everywhere")
    if chosen.all() and (others == others[0]).all() and not np.isin(others[0], inputs["words"]):
        return _named(CORRUPTION_MISTAKES, "another number for ignored")
    if (labels == corrupted)[chosen].all() and (labels != tokens)[chosen].any():
        return _named(CORRUPTION_MISTAKES, "labels taken after the corruption")
    if (
        (corrupted != tokens)[~chosen].any()
        and (corrupted == inputs["mask_id"])[chosen].all()
        and chosen.any()
    ):
        return _named(CORRUPTION_MISTAKES, "only [MASK] is predicted")
    return None


def _words_alone_are_chosen(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    _, _, _, chosen, ordinary = _parted(inputs, outputs)
    if (chosen & ~ordinary).any():
        return _named(CORRUPTION_MISTAKES, "special words are chosen")
    return None


def _the_rate_is_kept(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    _, _, _, chosen, ordinary = _parted(inputs, outputs)
    count, rate = ordinary.sum(), inputs["rate"]
    share = chosen.sum() / count
    if count < MANY or _about(share, rate, count):
        return None
    if _about(share, 0.15, count):
        return _named(CORRUPTION_MISTAKES, "0.15 written out")
    if _about(share, 1 - rate, count):
        return _named(CORRUPTION_MISTAKES, "the others are chosen")
    return Finding(
        f"A share of {share:.3f} of the words is chosen, with a rate of {rate} and {count:,} words.",
        "how often each word is drawn.",
    )


def _rows_differ(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    _, _, _, chosen, ordinary = _parted(inputs, outputs)
    alike = all(
        (row[both] == chosen[0][both]).all() for row, both in zip(chosen, ordinary & ordinary[0], strict=True)
    )
    if ordinary.sum() >= MANY and alike:
        return _named(CORRUPTION_MISTAKES, "one choice for all rows")
    return None


def _the_generator_decides(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    if inputs["tokens"].size < MANY:
        return None
    if (outputs["corrupted"] != outputs["corrupted again"]).any():
        return _named(CORRUPTION_MISTAKES, "the generator is not used")
    if (outputs["corrupted"] == outputs["corrupted of another seed"]).all():
        return _named(CORRUPTION_MISTAKES, "always the same draw")
    return None


def _eighty_ten_ten(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    tokens, corrupted, _, chosen, ordinary = _parted(inputs, outputs)
    now, before = corrupted[chosen], tokens[chosen]
    masked, kept = now == inputs["mask_id"], now == before
    random = ~masked & ~kept
    if not np.isin(now[random], inputs["words"]).all():
        return _named(CORRUPTION_MISTAKES, "numbers that are no words")
    if ordinary.sum() < MANY or not len(now):
        return None
    if random.sum() > 20 and len(set(now[random].tolist())) < 3:
        return _named(CORRUPTION_MISTAKES, "one random word for all")
    count, shares = len(now), (masked.mean(), random.mean(), kept.mean())
    for name, pattern in KINDS.items():
        if all(_about(share, wanted, count) for share, wanted in zip(shares, pattern, strict=True)):
            return _named(CORRUPTION_MISTAKES, name) if name else None
    return Finding(
        "Of the chosen words, {:.0%} become [MASK], {:.0%} another word, and {:.0%} stay.".format(*shares),
        "the three kinds, 80%, 10% and 10%: each word that was chosen belongs to exactly one.",
    )


KINDS = {  # shares of [MASK], of other words, of words that stay (a random word may be the old one again)
    "": (0.8, 0.1, 0.1),
    "every chosen word is masked": (1.0, 0.0, 0.0),
    "drawn twice": (0.64, 0.1, 0.26),
    "a tenth of the rest": (0.8, 0.02, 0.18),
    "no word stays": (0.8, 0.2, 0.0),
    "no random words": (0.8, 0.0, 0.2),
}


def _corruption(
    tokens,
    words,
    mask_id,
    rate,
    generator,
    *,
    choose: Callable | None = None,
    kinds: Callable | None = None,
    replace: Callable | None = None,
    finish: Callable = lambda tokens, corrupted, chosen: torch.where(chosen, tokens, IGNORED),
):
    """What most mistakes below start from: choose words, part them into kinds, replace them."""

    def drawn(shape=tokens.shape):
        return torch.rand(shape, generator=generator)

    ordinary = torch.isin(tokens, words)
    chosen = choose(drawn, ordinary) if choose else (drawn() < rate) & ordinary
    masked, random = kinds(drawn, chosen) if kinds else _bands(drawn(), chosen)
    if replace:
        others = replace(tokens, words, generator)
    else:
        others = words[torch.randint(len(words), tokens.shape, generator=generator)]
    corrupted = torch.where(random, others, tokens).masked_fill(masked, mask_id)
    return corrupted, finish(tokens, corrupted, chosen)


def _bands(kind, chosen, masked=0.8, random=0.9):
    """One number a word, cut in three: below `masked`, below `random`, above."""
    return chosen & (kind < masked), chosen & (kind >= masked) & (kind < random)


def _corrupting(**options) -> Callable:
    return lambda tokens, words, mask_id, rate, generator: _corruption(
        tokens, words, mask_id, rate, generator, **options
    )


def _special_chosen(tokens, words, mask_id, rate, generator):
    return _corruption(tokens, words, mask_id, rate, generator, choose=lambda drawn, ordinary: drawn() < rate)


def _others_chosen(tokens, words, mask_id, rate, generator):
    return _corruption(
        tokens, words, mask_id, rate, generator, choose=lambda drawn, ordinary: (drawn() > rate) & ordinary
    )


def _rows_alike(tokens, words, mask_id, rate, generator):
    return _corruption(
        tokens, words, mask_id, rate, generator,
        choose=lambda drawn, ordinary: (drawn(tokens.shape[1:]) < rate) & ordinary,
    )  # fmt: skip


def _kinds_drawn_twice(drawn, chosen):
    again = chosen & (drawn() < 0.8)
    return again & (drawn() < 0.8), chosen & ~again & (drawn() < 0.5)


def _tenth_of_the_rest(drawn, chosen):
    masked = chosen & (drawn() < 0.8)
    return masked, chosen & ~masked & (drawn() < 0.1)


def _numbers_below(tokens, words, generator):
    return torch.randint(len(words), tokens.shape, generator=generator)


def _one_other(tokens, words, generator):
    return words[torch.randint(len(words), (1,), generator=generator)].expand(tokens.shape)


def _labels_with(ignored: int) -> Callable:
    return _corrupting(finish=lambda tokens, corrupted, chosen: torch.where(chosen, tokens, ignored))


def _only_masked_labels(tokens, words, mask_id, rate, generator):
    corrupted, labels = _corruption(tokens, words, mask_id, rate, generator)
    return corrupted, torch.where(corrupted == mask_id, labels, IGNORED)


def _other_generator(make: Callable) -> Callable:
    return lambda tokens, words, mask_id, rate, generator: _corruption(tokens, words, mask_id, rate, make())


def _corrupts_in_place(tokens, words, mask_id, rate, generator):
    corrupted, labels = _corruption(tokens, words, mask_id, rate, generator)
    return tokens.copy_(corrupted), labels


CORRUPTION_MISTAKES = (
    Mistake(
        "special words are chosen",
        _special_chosen,
        "Words that are not in `words` are chosen too: the model learns to guess padding and sentence ends.",
        "torch.isin(tokens, words), which says what may be chosen at all.",
        ("bt-01",),
    ),
    Mistake(
        "0.15 written out",
        lambda tokens, words, mask_id, rate, generator: _corruption(tokens, words, mask_id, 0.15, generator),
        "You choose 15% whatever the rate.",
        "the number that you compare your draws with.",
    ),
    Mistake(
        "the others are chosen",
        _others_chosen,
        "You choose the share 1 - rate: a draw from 0 to 1 lies *below* the rate with the probability "
        "`rate`.",
        "the direction of the comparison.",
    ),
    Mistake(
        "one choice for all rows",
        _rows_alike,
        "Every row has its chosen words at the same places.",
        "the shape of what you draw: one number for each word of each row.",
    ),
    Mistake(
        "labels everywhere",
        _corrupting(finish=lambda tokens, corrupted, chosen: tokens.clone()),
        "Your labels hold every word, so most of the loss is for copying words that stand there already.",
        "what the labels are where nothing was chosen: -100.",
    ),
    Mistake(
        "another number for ignored",
        _labels_with(-1),
        "Your labels mark the words that are not predicted with another number than -100.",
        "the number that F.cross_entropy ignores by default; 0 and -1 are not it (0 is a word).",
        ("bt-05",),
    ),
    Mistake(
        "labels taken after the corruption",
        _corrupting(finish=lambda tokens, corrupted, chosen: torch.where(chosen, corrupted, IGNORED)),
        "Your labels hold the corrupted words: the model is to predict [MASK] where it reads [MASK].",
        "the text that you take the labels from.",
    ),
    Mistake(
        "only [MASK] is predicted",
        _only_masked_labels,
        "Chosen words that stay, or become another word, have no label. They are to be predicted as well.",
        "the labels: they depend on what was chosen, not on what was put in its place.",
    ),
    Mistake(
        "the generator is not used",
        _other_generator(lambda: None),
        "Two calls with equal generators give different results.",
        "the argument generator= of every draw (torch.rand, torch.randint, torch.randperm).",
    ),
    Mistake(
        "always the same draw",
        _other_generator(lambda: torch.Generator().manual_seed(0)),
        "Generators with different seeds give one and the same result: every epoch would hide the same "
        "words.",
        "a generator or a seed that you set inside of the function.",
    ),
    Mistake(
        "every chosen word is masked",
        _corrupting(kinds=lambda drawn, chosen: (chosen, chosen & False)),
        "All chosen words become [MASK]. A tenth of them should become another word, and a tenth should "
        "stay.",
        "the second draw, which decides what becomes of a chosen word.",
    ),
    Mistake(
        "drawn twice",
        _corrupting(kinds=_kinds_drawn_twice),
        "64% of the chosen words become [MASK], which is 80% of 80%: they are drawn twice.",
        "how many draws a word has to pass before it becomes [MASK].",
        ("bt-03",),
    ),
    Mistake(
        "a tenth of the rest",
        _corrupting(kinds=_tenth_of_the_rest),
        "2% of the chosen words become another word, which is 10% of the 20% that are left after the first "
        "draw.",
        "the second draw: 10% of all chosen words are half of those that were not masked.",
    ),
    Mistake(
        "no word stays",
        _corrupting(kinds=lambda drawn, chosen: _bands(drawn(), chosen, 0.8, 1.0)),
        "All chosen words that are not masked become another word; half of them should stay as they are.",
        "the third kind.",
    ),
    Mistake(
        "no random words",
        _corrupting(kinds=lambda drawn, chosen: _bands(drawn(), chosen, 0.8, 0.8)),
        "All chosen words that are not masked stay; half of them should become another word.",
        "the second kind, and whether torch.where gives back what you put in.",
    ),
    Mistake(
        "numbers that are no words",
        _corrupting(replace=_numbers_below),
        "Some words are replaced by numbers that are not in `words`, such as those of special words.",
        "words[...]: a random number below len(words) is a place in that list, not yet a word.",
    ),
    Mistake(
        "one random word for all",
        _corrupting(replace=_one_other),
        "All replaced words become one and the same word.",
        "the shape of the random words: one for each place.",
    ),
    Mistake(
        "writes into the text",
        _corrupts_in_place,
        "You write into the tokens that you were given. The next epoch corrupts what is left of them.",
        "a clone of the tokens, or torch.where and masked_fill, which make new tensors.",
    ),
)


def _share_of_each_row(tokens, words, mask_id, rate, generator):
    """Exactly the rate, as near as whole words allow, in every row."""
    corrupted, labels = tokens.clone(), torch.full_like(tokens, IGNORED)
    for row in range(len(tokens)):
        places = torch.isin(tokens[row], words).nonzero()[:, 0]
        order = places[torch.randperm(len(places), generator=generator)]
        for place in order[: round(rate * len(places))]:
            labels[row, place] = tokens[row, place]
            kind = torch.rand((), generator=generator)
            if kind < 0.8:
                corrupted[row, place] = mask_id
            elif kind < 0.9:
                corrupted[row, place] = words[torch.randint(len(words), (), generator=generator)]
    return corrupted, labels


def _by_bernoulli(tokens, words, mask_id, rate, generator):
    """Two coins: 80%, then half of the rest."""

    def coin(probability):
        return torch.bernoulli(torch.full(tokens.shape, probability), generator=generator).bool()

    chosen = coin(rate) & torch.isin(tokens, words)
    masked = chosen & coin(0.8)
    random = chosen & ~masked & coin(0.5)
    corrupted = tokens.clone()
    corrupted[masked] = mask_id
    drawn = torch.randint(len(words), (int(random.sum()),), generator=generator)
    corrupted[random] = words[drawn]
    return corrupted, tokens.masked_fill(~chosen, IGNORED)


def _one_number_in_bands(tokens, words, mask_id, rate, generator):
    u = torch.rand(tokens.shape, generator=generator).masked_fill(~torch.isin(tokens, words), 1.0)
    others = words[torch.randint(0, len(words), tokens.shape, generator=generator)]
    corrupted = torch.where(u < 0.9 * rate, others, tokens)
    corrupted = torch.where(u < 0.8 * rate, mask_id, corrupted)
    return corrupted, torch.where(u < rate, tokens, IGNORED)


def _never_the_old_word(tokens, words, mask_id, rate, generator):
    def replace(tokens, words, generator):
        place = torch.searchsorted(words, tokens).clamp(max=len(words) - 1)
        return words[(place + torch.randint(1, len(words), tokens.shape, generator=generator)) % len(words)]

    return _corruption(tokens, words, mask_id, rate, generator, replace=replace)


CORRUPTION_VARIANTS = (
    Variant("exactly the rate in every row, in loops", _share_of_each_row, ("bt-07",)),
    Variant("each word on its own, by two coins", _by_bernoulli, ("bt-07",)),
    Variant("one number a word, cut in bands", _one_number_in_bands),
    Variant("a random word is never the old one", _never_the_old_word),
)

BERT_CORRUPTION = Exercise(
    question=find("08.1"),
    title="BERT's corruption",
    minutes=20,
    difficulty=2,
    reference=_corruption_reference,
    axes={"restored": "batch, length"},
    parts=(
        Part(
            "which words are chosen, and their labels",
            1,
            _draw_corruption,
            ("restored",),
            "the labels: put back in their places, they have to give the text.",
            (_labels_hold_the_chosen, _words_alone_are_chosen, _the_rate_is_kept, _rows_differ),
        ),
        Part(
            "80% [MASK], 10% another word, 10% as it was",
            1,
            _draw_corruption,
            ("restored",),
            "the labels: put back in their places, they have to give the text.",
            (_labels_hold_the_chosen, _eighty_ten_ten, _the_generator_decides),
        ),
    ),
    mistakes=CORRUPTION_MISTAKES,
    variants=CORRUPTION_VARIANTS,
    forbidden=("transformers",),
)


# --- 08.2 causal loss ---------------------------------------------------------------------------------------


def _loss(logits: np.ndarray, tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Float64 reference: logits (batch, length, vocabulary), tokens and mask (batch, length)."""
    logits = logits.astype(np.float64)
    losses = []
    for row, words, real in zip(logits, tokens, mask, strict=True):
        for t in range(real.sum() - 1):
            top = row[t].max()
            losses.append(top + np.log(np.exp(row[t] - top).sum()) - row[t, words[t + 1]])
    return np.array(np.mean(losses))


def _loss_reference(inputs: Inputs) -> Outputs:
    def loss(given: Inputs) -> np.ndarray:
        return _loss(given["logits"], inputs["tokens"], inputs["mask"])

    expected = {"loss": loss(inputs)}
    if "upstream" in inputs:
        expected["gradient of logits"] = numeric_gradient(loss, inputs, "logits")
    return expected


def _loss_inputs(
    rng: Generator, mask: np.ndarray, vocabulary: int, *, gradient: bool = False, dtype: str = "float32"
) -> Inputs:
    """Logits for tokens of which the first word number is an ordinary word, with any words in the padding."""
    inputs = {
        "logits": 2 * normal(rng, *mask.shape, vocabulary, dtype=dtype),
        "tokens": rng.integers(0, vocabulary, mask.shape),
        "mask": mask,
    }
    inputs["tokens"][:, 1] = 0
    return inputs | ({"upstream": np.array(1.5, dtype)} if gradient else {})


def _draw_shifted(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 82])
    batch, length, vocabulary = sizes(rng, 3, 3, 9)
    return [
        _loss_inputs(rng, np.ones((1, 3), bool), 3),
        _loss_inputs(rng, np.ones((3, 4), bool), 5, gradient=True),
        _loss_inputs(rng, np.ones((batch, length), bool), vocabulary, dtype="float64"),
    ]


def _draw_padded(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 83])
    few = np.arange(5) < np.array([[5], [3]])
    uneven = np.arange(7) < np.array([[2], [7], [1], [4]])  # one sentence has nothing to predict
    large = _loss_inputs(rng, few, 6)
    large["logits"] = 200 * large["logits"]
    return [
        _loss_inputs(rng, few, 6),
        _loss_inputs(rng, np.arange(4) < np.array([[2], [3]]), 5, gradient=True),
        _loss_inputs(rng, uneven, 9),
        large,
    ]


def _entropies(logits: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), words.flatten(), reduction="none").view(words.shape)


def _masked_mean(losses: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (losses * mask).sum() / mask.sum()


def _causal_loss(logits, tokens, mask):
    return _masked_mean(_entropies(logits[:, :-1], tokens[:, 1:]), mask[:, 1:])


def _not_shifted(logits, tokens, mask):
    return _masked_mean(_entropies(logits, tokens), mask)


def _shifted_backwards(logits, tokens, mask):
    return _masked_mean(_entropies(logits[:, 1:], tokens[:, :-1]), mask[:, :-1])


def _shifted_twice(logits, tokens, mask):
    return _masked_mean(_entropies(logits[:, :-2], tokens[:, 2:]), mask[:, 2:])


def _flattened_first(logits, tokens, mask):
    logits, tokens, mask = logits.flatten(0, 1)[:-1], tokens.flatten()[1:], mask.flatten()[1:]
    return _masked_mean(F.cross_entropy(logits, tokens, reduction="none"), mask)


def _padding_counted(logits, tokens, mask):
    return _entropies(logits[:, :-1], tokens[:, 1:]).mean()


def _divided_by_all(logits, tokens, mask):
    return (_entropies(logits[:, :-1], tokens[:, 1:]) * mask[:, 1:]).mean()


def _mask_not_shifted(logits, tokens, mask):
    return _masked_mean(_entropies(logits[:, :-1], tokens[:, 1:]), mask[:, :-1])


def _row_means(logits, tokens, mask):
    losses, real = _entropies(logits[:, :-1], tokens[:, 1:]) * mask[:, 1:], mask[:, 1:].sum(1)
    return (losses.sum(1) / real.clamp(min=1))[real > 0].mean()


def _number_0_ignored(logits, tokens, mask):
    words = tokens.masked_fill(~mask, 0)[:, 1:]
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), words.flatten(), ignore_index=0)


def _double_softmax(logits, tokens, mask):
    return _causal_loss(logits.softmax(-1), tokens, mask)


def _last_predicts_first(logits, tokens, mask):
    return _masked_mean(_entropies(logits, tokens.roll(-1, dims=1)), mask)


def _log_of_exponentials(logits, tokens, mask):
    parts = logits.exp()
    chosen = (parts / parts.sum(-1, keepdim=True)).log()[:, :-1].gather(-1, tokens[:, 1:, None])[..., 0]
    return -_masked_mean(chosen, mask[:, 1:])


LOSS_MISTAKES = (
    Mistake(
        "not shifted",
        _not_shifted,
        "The logits at a word are compared with that very word, which the model has just read: it learns to "
        "copy.",
        "which word the logits at place t are to predict.",
        ("tr-12",),
    ),
    Mistake(
        "shifted backwards",
        _shifted_backwards,
        "The logits at a word are compared with the word before it.",
        "which of the two loses its first place, and which its last.",
    ),
    Mistake(
        "shifted twice",
        _shifted_twice,
        "The logits at a word are compared with the word after the next.",
        "whether the shift is done in two places: once is enough.",
        ("tr-13",),
    ),
    Mistake(
        "flattened before the shift",
        _flattened_first,
        "The last word of a sentence predicts the first of the next one: the batch is flattened before the "
        "shift.",
        "the order of the two: shift along the length, then flatten.",
        ("tr-14",),
    ),
    Mistake(
        "the last word predicts the first",
        _last_predicts_first,
        "torch.roll moves the first word behind the last, which then has to predict it.",
        "slices instead of roll: the last place has nothing to predict.",
    ),
    Mistake(
        "padding counted",
        _padding_counted,
        "Padding is predicted too: the mean runs over all places.",
        "the mask, which says for each word whether it is real.",
    ),
    Mistake(
        "divided by all places",
        _divided_by_all,
        "The losses of the padding are 0, but they are counted: you divide by all places.",
        "what the sum is divided by: the number of real words that were predicted.",
    ),
    Mistake(
        "the mask is not shifted",
        _mask_not_shifted,
        "The last real word of a sentence predicts padding: your mask is that of the words that are read.",
        "the mask of the words that are predicted.",
    ),
    Mistake(
        "mean of the sentences' means",
        _row_means,
        "You average the sentences' means, so that a word of a short sentence weighs more.",
        "where you divide: one sum over all words, one division.",
    ),
    Mistake(
        "word 0 ignored",
        _number_0_ignored,
        "The word with the number 0 is ignored. Here it is a word like any other; the mask says what is "
        "padding.",
        "ignore_index: a number that no word has, such as -100.",
        ("bt-05",),
    ),
    Mistake(
        "softmax twice",
        _double_softmax,
        "The cross-entropy takes logits; you give it probabilities, of which it makes a softmax once more.",
        "a softmax before F.cross_entropy.",
    ),
    Mistake(
        "exponentials overflow",
        _log_of_exponentials,
        "exp of a large logit is inf, and of a very low one 0: the loss is not finite.",
        "torch.log_softmax or F.cross_entropy, which subtract the largest logit first.",
    ),
    Mistake(
        "a sum",
        lambda logits, tokens, mask: _causal_loss(logits, tokens, mask) * mask[:, 1:].sum(),
        "You add the losses of the words up. Wanted is their mean.",
        "the last step: divide by the number of words that were predicted.",
    ),
    Mistake(
        "perplexity",
        lambda logits, tokens, mask: _causal_loss(logits, tokens, mask).exp(),
        "You return the perplexity, exp of the loss. Wanted is the loss.",
        "the last line.",
    ),
    Mistake(
        "the sign is lost",
        lambda logits, tokens, mask: -_causal_loss(logits, tokens, mask),
        "Your loss is negative: it is the mean log-probability, without the minus sign.",
        "the sign.",
    ),
    Mistake(
        "gradient cut",
        lambda logits, tokens, mask: _causal_loss(logits.detach(), tokens, mask),
        "No gradient reaches the logits, so nothing could learn.",
        ".detach(), .data, .numpy(), .item() and torch.no_grad().",
    ),
)


def _loss_ignoring(logits, tokens, mask):
    words = torch.where(mask, tokens, IGNORED)[:, 1:]
    return F.cross_entropy(logits[:, :-1].mT, words)


def _loss_with_ends(logits, tokens, mask):
    """All places kept: the labels are moved, and filled up with what is ignored."""
    labels = F.pad(torch.where(mask, tokens, IGNORED)[:, 1:], (0, 1), value=IGNORED)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def _loss_in_loops(logits, tokens, mask):
    losses = [
        -torch.log_softmax(logits[i, t], -1)[tokens[i, t + 1]]
        for i in range(len(tokens))
        for t in range(tokens.shape[1] - 1)
        if mask[i, t + 1]
    ]
    return torch.stack(losses).mean()


def _loss_of_chosen(logits, tokens, mask):
    real = mask[:, 1:]
    return F.nll_loss(torch.log_softmax(logits[:, :-1], -1)[real], tokens[:, 1:][real])


CAUSAL_LOSS = Exercise(
    question=find("08.2"),
    title="causal loss",
    minutes=10,
    difficulty=1,
    reference=_loss_reference,
    axes={"loss": ""},
    parts=(
        Part(
            "each word predicts the next",
            1,
            _draw_shifted,
            ("loss", "gradient of logits"),
            "two words by hand: which logits predict which word?",
        ),
        Part(
            "sentences of different lengths",
            1,
            _draw_padded,
            ("loss", "gradient of logits"),
            "what is summed, and what the sum is divided by.",
        ),
    ),
    mistakes=LOSS_MISTAKES,
    variants=(
        Variant("-100 as a label", _loss_ignoring),
        Variant("-100 behind the last word", _loss_with_ends),
        Variant("a loop over words", _loss_in_loops),
        Variant("real words picked out first", _loss_of_chosen),
        Variant("sum divided by the number of words", _causal_loss),
    ),
    forbidden=("course_utils.training",),
)


# --- 08.3 span corruption -----------------------------------------------------------------------------------


def _spans_reference(inputs: Inputs) -> Outputs:
    source, target, spans = [], [], 0
    for word, hidden, before in zip(
        inputs["tokens"], inputs["hidden"], [False, *inputs["hidden"][:-1]], strict=True
    ):
        if hidden and not before:
            source.append(inputs["sentinels"][spans])
            target.append(inputs["sentinels"][spans])
            spans += 1
        (target if hidden else source).append(word)
    target.append(inputs["end"])
    parts = ([*source, inputs["end"]], [inputs["start"], *target[:-1]], target)
    return {name: np.array(part, np.float64) for name, part in zip(SPANS, parts, strict=True)}


def _hiding(rng: Generator, hidden: str) -> Inputs:
    """A sentence of different words, hidden where `hidden` has an x; sentinels in no order."""
    numbers = rng.permutation(np.arange(1, 60))
    special, words = numbers[:8], numbers[8 : 8 + len(hidden)]
    return {
        "tokens": words,
        "hidden": np.array([mark == "x" for mark in hidden]),
        "sentinels": special[:6],
        "start": int(special[6]),
        "end": int(special[7]),
    }


def _draw_spans(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 84])
    t5 = _hiding(rng, "..xx.x..") | {"sentinels": np.array([99, 98, 97, 96])}
    return [
        _hiding(rng, "..xx."),
        t5,
        _hiding(rng, "x..xxx.x."),
        _hiding(rng, ".xx..x.xxx"),  # up to the end
        _hiding(rng, "....."),
        _hiding(rng, "xxx"),
    ]


def _runs(hidden: torch.Tensor) -> list[tuple[bool, int, int]]:
    """(hidden, start, stop) of each run of equal values."""
    runs, place = [], 0
    for value, group in groupby(hidden.tolist()):
        length = len(list(group))
        runs.append((value, place, place + length))
        place += length
    return runs


def _spans(
    tokens,
    hidden,
    sentinels,
    start,
    end,
    *,
    number: Callable = lambda sentinels, k: int(sentinels[k]),
    shown: Callable = lambda mark, words: [mark],
    told: Callable = lambda mark, words: [mark, *words],
    kept: bool = False,
    runs: Callable = _runs,
    source_end: bool = True,
    target_end: bool = True,
    read: Callable = lambda target, start: [start, *target[:-1]],
):
    """What most mistakes below start from."""
    source, target, spans = [], [], 0
    for gap, first, stop in runs(hidden):
        words = tokens[first:stop].tolist()
        if gap:
            mark = number(sentinels, spans)
            source += shown(mark, words)
            target += told(mark, words)
            spans += 1
        else:
            source += words
            target += words if kept else []
    source, target = source + [end] * source_end, target + [end] * target_end
    return tuple(torch.tensor(part, dtype=torch.int64) for part in (source, read(target, start), target))


def _spanning(**options) -> Callable:
    return lambda tokens, hidden, sentinels, start, end: _spans(
        tokens, hidden, sentinels, start, end, **options
    )


def _complement(tokens, hidden, sentinels, start, end):
    source, _, _ = _spans(tokens, hidden, sentinels, start, end)
    _, target_in, target_out = _spans(tokens, ~hidden, sentinels, start, end)
    return source, target_in, target_out


def _first_span_only(hidden):
    runs = _runs(hidden)
    first = next((i for i, (gap, _, _) in enumerate(runs) if gap), 0)
    return [(gap and i == first, *place) for i, (gap, *place) in enumerate(runs)]


def _last_span_lost(hidden):
    runs = _runs(hidden)
    return runs[:-1] if runs[-1][0] else runs


def _sentinel_after(tokens, hidden, sentinels, start, end):
    return _spans(tokens, hidden, sentinels, start, end, told=lambda mark, words: [*words, mark])


def _text_written(tokens, hidden, sentinels, start, end):
    result = _spans(tokens, hidden, sentinels, start, end)
    tokens[hidden] = sentinels[0]
    return result


SPAN_MISTAKES = (
    Mistake(
        "a sentinel for each word",
        _spanning(runs=lambda hidden: [(h, i, i + 1) for i, h in enumerate(hidden.tolist())]),
        "Every hidden word gets a sentinel of its own. A span gets one, however long it is.",
        "where a span begins: at a hidden word after one that is not hidden (or at the first word).",
    ),
    Mistake(
        "one sentinel for all spans",
        _spanning(number=lambda sentinels, k: int(sentinels[0])),
        "All spans have the same sentinel, so the target does not say which words belong where.",
        "the count of spans so far, which says whose turn it is.",
    ),
    Mistake(
        "the last sentinel first",
        _spanning(number=lambda sentinels, k: int(sentinels.flip(0)[k])),
        "You take the sentinels from the end. The first span gets sentinels[0].",
        "the direction in which you go through the sentinels.",
        ("t5-05",),
    ),
    Mistake(
        "sentinels counted up",
        _spanning(number=lambda sentinels, k: int(sentinels[0]) + k),
        "You count up from the first sentinel, and the numbers that you meet are words.",
        "sentinels[k]: they need not be neighbours.",
        ("t5-05",),
    ),
    Mistake(
        "sentinels counted down",
        _spanning(number=lambda sentinels, k: int(sentinels[0]) - k),
        "You count down from the first sentinel. That is right in T5's vocabulary, and here it meets words.",
        "sentinels[k]: they need not be neighbours.",
        ("t5-05",),
    ),
    Mistake(
        "no sentinels in the source",
        _spanning(shown=lambda mark, words: []),
        "The hidden words are gone from the source, and nothing says where they were.",
        "what stands in the source in place of a span.",
    ),
    Mistake(
        "the hidden words still stand in the source",
        _spanning(shown=lambda mark, words: [mark, *words]),
        "The source still holds the hidden words, behind their sentinel: there is nothing left to guess.",
        "what is left out of the source.",
    ),
    Mistake(
        "no sentinels in the target",
        _spanning(told=lambda mark, words: words),
        "The target is the hidden words one after the other, and nothing says where one span ends.",
        "what stands before the words of each span.",
    ),
    Mistake(
        "the sentinel after its words",
        _sentinel_after,
        "In the target each sentinel follows its words. It has to come first, to say which gap is filled "
        "next.",
        "the order of the two.",
    ),
    Mistake(
        "the target holds the other words",
        _complement,
        "The target spells the words that the source shows. It has to spell those that are hidden.",
        "which words go where.",
    ),
    Mistake(
        "the whole sentence in the target",
        _spanning(told=lambda mark, words: words, kept=True),
        "The target is the whole sentence (that is BART's task). T5's is shorter: what is hidden, and no "
        "more.",
        "which words go into the target.",
    ),
    Mistake(
        "hidden and shown swapped",
        lambda tokens, hidden, sentinels, start, end: _spans(tokens, ~hidden, sentinels, start, end),
        "You hide the words that should be shown, and show those that should be hidden.",
        "the meaning of `hidden`: True marks a word that the source must not show.",
    ),
    Mistake(
        "the first span alone",
        _spanning(runs=_first_span_only),
        "Only the first span is hidden.",
        "what happens after the first span: a break, or a return inside the loop.",
    ),
    Mistake(
        "the span at the end is lost",
        _spanning(runs=_last_span_lost),
        "A span that reaches the end of the sentence is lost: nothing comes after it that would close it.",
        "what your loop leaves unfinished when the words run out.",
    ),
    Mistake(
        "no end in the source",
        _spanning(source_end=False),
        "The source does not end with `end`.",
        "its last number.",
    ),
    Mistake(
        "no end in the target",
        _spanning(target_end=False),
        "The target does not end with `end`, so the model never learns to stop.",
        "the last number of target_out.",
    ),
    Mistake(
        "no start",
        lambda *arguments: (
            (found := _spans(*arguments))[0],
            found[2][:-1],
            found[2][1:],
        ),
        "target_in is the target without its end, and target_out the target without its first sentinel, "
        "which "
        "is then never learned: the target has no start of its own.",
        "the shift: target_in is `start` and then the target without its last number; target_out stays "
        "whole.",
        ("t5-01",),
    ),
    Mistake(
        "start twice",
        _spanning(read=lambda target, start: [start, start, *target[:-1]]),
        "target_in begins with `start` twice.",
        "whether two places of your code add it.",
        ("t5-02",),
    ),
    Mistake(
        "the shift of zeros",
        _spanning(read=lambda target, start: [start, *([0] * (len(target) - 1))]),
        "target_in is `start` and zeros: the target was never copied into it.",
        "what you shift: the numbers of target_out, not an empty tensor.",
        ("t5-03",),
    ),
    Mistake(
        "not shifted",
        _spanning(read=lambda target, start: target),
        "target_in equals target_out: the decoder reads what it is to predict.",
        "the shift by one place, with `start` in front.",
    ),
    Mistake(
        "the decoder reads the end",
        _spanning(read=lambda target, start: [start, *target]),
        "target_in is one longer than target_out: it still holds `end`, after which nothing is predicted.",
        "the last number of target_in.",
    ),
    Mistake(
        "start is 0",
        _spanning(read=lambda target, start: [0, *target[:-1]]),
        "target_in begins with 0, whatever `start` is. (In T5 it happens to be 0.)",
        "the first number of target_in.",
    ),
    Mistake(
        "writes into the text",
        _text_written,
        "You write into the tokens that you were given. The next epoch needs them whole.",
        "a clone of the tokens, or lists that you fill.",
    ),
)


def _spans_by_tensors(tokens, hidden, sentinels, start, end):
    """Without a loop: count the beginnings, then choose."""
    previous = torch.cat([hidden.new_zeros(1), hidden[:-1]])
    begins = hidden & ~previous
    marks = sentinels[(begins.cumsum(0) - 1).clamp(min=0)]
    source = torch.where(begins, marks, tokens)[~hidden | begins]
    both = torch.stack([marks, tokens], dim=1)  # (length, 2): a sentinel may stand before each word
    target = both[torch.stack([begins, hidden], dim=1)]
    last = tokens.new_tensor([end])
    target_out = torch.cat([target, last])
    target_in = target_out.roll(1)
    target_in[0] = start
    return torch.cat([source, last]), target_in, target_out


def _spans_word_by_word(tokens, hidden, sentinels, start, end):
    waiting, source, target, inside = iter(sentinels.tolist()), [], [start], False
    for word, hide in zip(tokens.tolist(), hidden.tolist(), strict=True):
        if hide and not inside:
            mark = next(waiting)
            source.append(mark)
            target.append(mark)
        (target if hide else source).append(word)
        inside = hide
    as_tensor = torch.tensor
    return [as_tensor([*source, end]), as_tensor(target), as_tensor([*target[1:], end])]


SPAN_CORRUPTION = Exercise(
    question=find("08.3"),
    title="span corruption",
    minutes=20,
    difficulty=2,
    reference=_spans_reference,
    axes=dict.fromkeys(SPANS, "length"),
    parts=(
        Part(
            "the source, with a sentinel for each span",
            1,
            _draw_spans,
            ("source",),
            "one short sentence by hand: where does a span begin?",
        ),
        Part(
            "what the decoder reads and is to write",
            1,
            _draw_spans,
            ("target_out", "target_in"),
            "one short sentence by hand: what has to be known to put the words back?",
        ),
    ),
    mistakes=SPAN_MISTAKES,
    variants=(
        Variant("runs by groupby", _spanning()),
        Variant("without a loop", _spans_by_tensors),
        Variant("word by word, in a list", _spans_word_by_word),
        Variant("int32", lambda *given: tuple(part.int() for part in _spans(*given))),
    ),
    forbidden=("transformers",),
)


# --- 08.4 four masks ----------------------------------------------------------------------------------------


def _mask_reference(inputs: Inputs) -> Outputs:
    real, size = inputs["real"], inputs["size"]
    length = real.shape[1]
    mask = np.zeros((len(real), length, length))
    for i, row in enumerate(real):
        for t in range(length):
            for s in range(length):
                allowed = {
                    "both": True,
                    "causal": s <= t,
                    "prefix": s <= t or s < size,
                    "window": t - size < s <= t,
                }
                mask[i, t, s] = allowed[inputs["kind"]] and row[t] and row[s]
    return {"mask": mask}


def _draw_mask(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 85])
    cases = []
    for real in (np.ones((1, 4), bool), np.arange(6) < np.array([[6], [4], [1]])):
        for kind, size in (("both", 0), ("causal", 0), ("prefix", 2), ("window", 2)):
            cases.append({"kind": kind, "real": real, "size": size})
    batch, length = sizes(rng, 2, 4, 9)
    real = padded(rng, batch, length)
    cases += [{"kind": kind, "real": real, "size": 3} for kind in ("both", "causal", "prefix", "window")]
    cases += [{"kind": "prefix", "real": real, "size": 0}, {"kind": "window", "real": real, "size": 1}]
    return cases


def _a_mask_of_booleans(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    if outputs["kind"] == "bool":
        return None
    return Finding(
        f"Your mask holds numbers ({outputs['kind']}). Here a mask is boolean, True = may attend.",
        "comparisons, &, | and ~, which give booleans.",
    )


def _no_future(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    if inputs["kind"] in ("causal", "window") and np.triu(outputs["mask"], 1).any():
        return Finding(
            f'With "{inputs["kind"]}" a word sees words that come after it.', "s <= t.", output="mask"
        )
    return None


def _places(length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(who asks, who is asked): (length, 1) and (1, length)."""
    here = torch.arange(length)
    return here[:, None], here[None]


def _mask(
    kind,
    real,
    size,
    *,
    both: Callable = lambda t, s, size: (t >= 0) & (s >= 0),
    causal: Callable = lambda t, s, size: s <= t,
    prefix: Callable = lambda t, s, size: (s <= t) | (s < size),
    window: Callable = lambda t, s, size: (s <= t) & (t - s < size),
):
    """What most mistakes below start from."""
    t, s = _places(real.shape[1])
    allowed = {"both": both, "causal": causal, "prefix": prefix, "window": window}[kind]
    return allowed(t, s, size)[None] & real[:, None]


def _masking(**options) -> Callable:
    return lambda kind, real, size: _mask(kind, real, size, **options)


def _unpadded(kind, real, size):
    return _mask(kind, torch.ones_like(real), size)


def _padding_on_queries(kind, real, size):
    return _unpadded(kind, real, size) & real[:, :, None]


def _added(kind, real, size):
    return torch.zeros(()).where(_mask(kind, real, size), -INF)


MASK_MISTAKES = (
    Mistake(
        "mask inverted",
        lambda kind, real, size: ~_mask(kind, real, size),
        "True marks what is hidden in your mask. Here True means: may attend.",
        "the meaning of the mask (nn.MultiheadAttention has the opposite one).",
        ("cm-08",),
    ),
    Mistake(
        "numbers to be added",
        _added,
        "Your mask holds 0 and -inf, to be added to the scores. Here a mask is boolean, True = may attend.",
        "the last step, which is not needed.",
    ),
    Mistake(
        "padding not masked",
        _unpadded,
        "Words attend to padding: `real` does not enter your mask.",
        "whether the mask that you return is the one that you put `real` into.",
        ("bt-06",),
    ),
    Mistake(
        "padding on the axis of those who ask",
        _padding_on_queries,
        "The rows of padding are cleared, but its columns are open: every real word still sees padding.",
        "the axis of `real`: (batch, 1, length), for those who are asked.",
        ("cm-05",),
    ),
    Mistake(
        "transposed",
        lambda kind, real, size: _unpadded(kind, real, size).mT & real[:, None],
        "Rows and columns are swapped: words see what comes after them.",
        "rows are those who ask, columns those who are asked.",
    ),
    Mistake(
        "a word does not see itself",
        _masking(causal=lambda t, s, size: s < t),
        "In the causal mask a word does not see itself, and the first sees nothing at all.",
        "the diagonal.",
        ("cm-02",),
    ),
    Mistake(
        "one word of the future",
        _masking(causal=lambda t, s, size: s <= t + 1),
        "In the causal mask a word sees the next one, which it is to predict.",
        "the diagonal argument of tril or triu.",
    ),
    Mistake(
        "both ways is causal",
        _masking(both=lambda t, s, size: s <= t),
        'With "both" every word sees every real word, those after it too.',
        "the kind that your causal mask is for.",
    ),
    Mistake(
        "the prefix is causal",
        _masking(prefix=lambda t, s, size: s <= t),
        "Inside of the prefix words see only what comes before them. They should see the whole prefix.",
        "what is added to the causal mask: everyone may see a place below `size`.",
    ),
    Mistake(
        "the prefix sees everything",
        _masking(prefix=lambda t, s, size: (s <= t) | (t < size)),
        "The words of the prefix see the words after it, which are to be predicted.",
        "which axis `size` cuts: those who are asked.",
    ),
    Mistake(
        "the prefix alone",
        _masking(prefix=lambda t, s, size: ((s < size) & (t < size)) | (s < size)),
        "The words after the prefix see the prefix only, and not one another.",
        "the causal part: the two are joined by an or.",
    ),
    Mistake(
        "the prefix is not seen from outside",
        _masking(prefix=lambda t, s, size: ((s < size) & (t < size)) | ((s <= t) & (s >= size))),
        "The words after the prefix do not see it.",
        "the causal part: the past of a word begins with the prefix.",
    ),
    Mistake(
        "the prefix is one too long",
        _masking(prefix=lambda t, s, size: (s <= t) | (s <= size)),
        "Your prefix is one word too long: with size 2 it has the places 0 and 1.",
        "the comparison with `size`.",
    ),
    Mistake(
        "the window looks both ways",
        _masking(window=lambda t, s, size: (t - s).abs() < size),
        "Your window reaches into the future.",
        "the causal part: the window cuts off the distant past, and nothing more.",
    ),
    Mistake(
        "the window is one too wide",
        _masking(window=lambda t, s, size: (s <= t) & (t - s <= size)),
        "Your window has size + 1 places: the word itself counts.",
        "a window of size 1, in which a word sees itself alone.",
    ),
    Mistake(
        "the window leaves out the word itself",
        _masking(window=lambda t, s, size: (s < t) & (t - s <= size)),
        "In your window a word does not see itself.",
        "a window of size 1, in which a word sees itself alone.",
    ),
    Mistake(
        "the window starts at the beginning",
        _masking(window=lambda t, s, size: (s <= t) & (s < size)),
        "Your window is the first words of the sentence. It should move along with the word that asks.",
        "the distance t - s, of which the window is made.",
    ),
    Mistake(
        "blocks instead of a window",
        _masking(window=lambda t, s, size: (s <= t) & (t // size == s // size)),
        "The sentence is cut in blocks, and the first word of each sees nothing before it.",
        "the distance t - s: the window moves along with the word that asks.",
    ),
)


def _mask_by_tril(kind, real, size):
    length = real.shape[1]
    ones = torch.ones(length, length, dtype=torch.bool)
    mask = {
        "both": ones,
        "causal": ones.tril(),
        "prefix": ones.tril().index_fill(1, torch.arange(min(size, length)), True),
        "window": ones.tril() & ones.triu(1 - size),
    }[kind]
    return mask & real[:, None] & real[:, :, None]


def _mask_in_loops(kind, real, size):
    batch, length = real.shape
    mask = torch.zeros(batch, length, length, dtype=torch.bool)
    for t in range(length):
        first = max(0, t - size + 1) if kind == "window" else 0
        last = {"both": length, "prefix": max(size, t + 1)}.get(kind, t + 1)
        mask[:, t, first:last] = real[:, first:last]
    return mask


FOUR_MASKS = Exercise(
    question=find("08.4"),
    title="four masks",
    minutes=10,
    difficulty=1,
    reference=_mask_reference,
    axes={"mask": "batch, asking, asked"},
    parts=(
        Part(
            "both ways, causal, prefix and window, with padding",
            1,
            _draw_mask,
            ("mask",),
            "your mask of the smallest case, printed: rows are those who ask.",
            (_a_mask_of_booleans, _no_future),
        ),
    ),
    mistakes=MASK_MISTAKES,
    variants=(
        Variant("tril and triu, rows of padding cleared", _mask_by_tril, ("cm-10",)),
        Variant("in loops", _mask_in_loops, ("cm-10",)),
        Variant("an axis for the heads", lambda *given: _mask(*given)[:, None], ("cm-12",)),
        Variant(
            "one row for all who ask",
            lambda kind, real, size: real[:, None] if kind == "both" else _mask(kind, real, size),
        ),
    ),
    forbidden=("course_utils.models",),
)


# --- 08.5 attention in blocks -------------------------------------------------------------------------------


def _attention(query: np.ndarray, key: np.ndarray, value: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Float64 reference, all keys at once; a row that may attend to nothing is zeros."""
    query, key, value = (part.astype(np.float64) for part in (query, key, value))
    scores = np.where(mask[:, None], query @ key.swapaxes(1, 2) / query.shape[-1] ** 0.5, -INF)
    top = scores.max(-1, keepdims=True)
    parts = np.exp(scores - np.where(top == -INF, 0, top))
    total = parts.sum(-1, keepdims=True)
    return parts @ value / np.where(total > 0, total, 1)


def _blocks_reference(inputs: Inputs) -> Outputs:
    def output(given: Inputs) -> np.ndarray:
        return _attention(given["query"], given["key"], given["value"], given["mask"])

    expected = {"output": output(inputs)}
    if "upstream" in inputs:
        for name in ("query", "key", "value"):
            expected[f"gradient of {name}"] = numeric_gradient(output, inputs, name)
    return expected


def _block_inputs(
    rng: Generator, blocks: list[int], batch: int, target: int, width: int, value: int, scale: float = 1.5
) -> Inputs:
    source = sum(blocks)
    return {
        "query": (scale * normal(rng, batch, target, width)).astype("float32"),
        "key": (scale * normal(rng, batch, source, width)).astype("float32"),
        "value": normal(rng, batch, source, value),
        "mask": np.ones((batch, source), bool),
        "blocks": blocks,
    }


def _draw_blocks(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 86])
    tiny = _block_inputs(rng, [1, 2], 1, 1, 2, 1)
    batch, target, width, value = sizes(rng, 4)
    rising = _block_inputs(rng, [2, 2, 2], 1, 2, 3, 2)  # each block has a higher score than the one before
    rising["query"] = np.abs(rising["query"])
    rising["key"] = (np.abs(rising["key"]) * np.repeat([0.2, 1, 2], 2)[:, None]).astype("float32")
    falling = rising | {"key": rising["key"][:, ::-1].copy()}
    return [
        {
            name: part.round(1) if isinstance(part, np.ndarray) and part.dtype != bool else part
            for name, part in tiny.items()
        },
        rising,
        falling,
        _block_inputs(rng, [3, 1, 4, 2, 5, 2, 3], batch, target, width, value),
        _block_inputs(rng, [2, 3], 2, 3, 4, 2) | {"upstream": normal(rng, 2, 3, 2)},
    ]


def _draw_blocks_edges(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 87])
    ends = _block_inputs(rng, [2, 2, 1], 2, 2, 3, 2)
    ends["mask"][:, 3:] = False  # the end of the second block and all of the third
    starts = _block_inputs(rng, [2, 3, 1], 2, 2, 3, 2)
    starts["mask"][0, :2] = False  # one sentence sees nothing of the first block
    none = _block_inputs(rng, [2, 3], 2, 2, 3, 2)
    none["mask"][1] = False  # and one sees nothing at all
    falling = _block_inputs(rng, [2, 2], 1, 2, 4, 3)  # scores near 60, then near -60: their ratio overflows
    falling["query"][..., 0] = 2
    falling["key"][..., 0] = [60, 60, -60, -60]
    large = _block_inputs(rng, [2, 2, 3], 2, 3, 4, 3, scale=25.0)  # exp of a score overflows
    return [
        ends,
        starts | {"upstream": normal(rng, 2, 2, 2)},
        none | {"upstream": normal(rng, 2, 2, 2)},
        falling,
        large,
    ]


def _blocks_are_let_go(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    return _named(BLOCK_MISTAKES, "the blocks are collected") if outputs["kept"] else None


def _online(
    query,
    blocks,
    *,
    scale: Callable = lambda query, value: query.shape[-1] ** -0.5,
    hide: Callable = lambda scores, mask: scores.masked_fill(~mask[:, None], -INF),
    top_of: Callable = torch.maximum,
    safe: bool = True,
    rescale_sum: bool = True,
    rescale_output: bool = True,
    shrink: Callable = lambda old, new: torch.exp(old - new),
    divide: Callable = lambda output, total: output / total.masked_fill(total == 0, 1.0),
):
    """What most mistakes below start from."""
    top, total, output = query.new_full((*query.shape[:2], 1), -INF), 0.0, 0.0
    for key, value, mask in blocks:
        scores = hide(query @ key.mT * scale(query, value), mask)
        new_top = top_of(top, scores.amax(-1, keepdim=True))
        base = new_top.masked_fill(new_top == -INF, 0.0) if safe else new_top
        parts = torch.exp(scores - base)
        old = torch.where(top == -INF, 0.0, shrink(top, base)) if safe else shrink(top, base)
        total = total * (old if rescale_sum else 1.0) + parts.sum(-1, keepdim=True)
        output = output * (old if rescale_output else 1.0) + parts @ value
        top = new_top
    return divide(output, total)


def _onlining(**options) -> Callable:
    return lambda query, blocks: _online(query, blocks, **options)


def _softmax_each(query, blocks):
    """The output of each block on its own."""
    return [_online(query, [block]) for block in blocks]


def _collected(query, blocks):
    return _online(query, [tuple(torch.cat(parts, 1) for parts in zip(*blocks, strict=True))])


def _no_maximum(query, blocks):
    total = output = 0.0
    for key, value, mask in blocks:
        parts = torch.exp(query @ key.mT * query.shape[-1] ** -0.5) * mask[:, None]
        total = total + parts.sum(-1, keepdim=True)
        output = output + parts @ value
    return output / torch.where(total == 0, 1.0, total)


def _divided_in_each(query, blocks):
    """Divides by the sum so far in every block, and forgets that the old output is divided already."""
    top, total, output = query.new_full((*query.shape[:2], 1), -INF), 0.0, 0.0
    for key, value, mask in blocks:
        scores = (query @ key.mT * query.shape[-1] ** -0.5).masked_fill(~mask[:, None], -INF)
        new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
        base = new_top.masked_fill(new_top == -INF, 0.0)
        parts, old = torch.exp(scores - base), torch.where(top == -INF, 0.0, torch.exp(top - base))
        total = total * old + parts.sum(-1, keepdim=True)
        output = (output * old + parts @ value) / total.masked_fill(total == 0, 1.0)
        top = new_top
    return output


def _first_block(query, blocks):
    return _online(query, [next(iter(blocks))])


def _last_block(query, blocks):
    *_, last = blocks
    return _online(query, [last])


def _empty_uniform(query, blocks):
    """Hides with the lowest finite number: where all is hidden, all weigh the same."""
    return _online(
        query,
        blocks,
        hide=lambda scores, mask: scores.masked_fill(~mask[:, None], torch.finfo(scores.dtype).min),
    )


BLOCK_MISTAKES = (
    Mistake(
        "the blocks are collected",
        _collected,
        "You keep the blocks that you have read. Each may be looked at once and then has to go.",
        "list(blocks), torch.cat and lists that you append to: what is kept of a block is sums.",
    ),
    Mistake(
        "the sum is not rescaled",
        _onlining(rescale_sum=False),
        "When the highest score rises, the old sum of exponentials is still relative to the old one.",
        "the factor exp(old highest - new highest): the sum needs it as well as the output.",
    ),
    Mistake(
        "the output is not rescaled",
        _onlining(rescale_output=False),
        "When the highest score rises, the old weighted sum is still relative to the old one.",
        "the factor exp(old highest - new highest): the output needs it as well as the sum.",
    ),
    Mistake(
        "nothing is rescaled",
        _onlining(rescale_sum=False, rescale_output=False),
        "Every block is relative to another highest score, and you add them up as they are.",
        "the factor exp(old highest - new highest), for what was summed before.",
    ),
    Mistake(
        "rescaled the wrong way",
        _onlining(shrink=lambda old, new: torch.exp(new - old)),
        "The old sums grow when the highest score rises. They have to shrink.",
        "the sign in exp(old highest - new highest), which is at most 1.",
    ),
    Mistake(
        "the highest score of the block alone",
        _onlining(top_of=lambda top, block: block),
        "You subtract the highest score of the block, even if an earlier one was higher: a later block with "
        "low "
        "scores makes the factor overflow, or divides 0 by 0.",
        "the running maximum, of the old highest score and the block's.",
    ),
    Mistake(
        "blocks averaged",
        lambda query, blocks: torch.stack(_softmax_each(query, blocks)).mean(0),
        "You take the softmax inside of each block, and average the blocks as if they weighed the same.",
        "what has to be carried from block to block: a sum of exponentials.",
    ),
    Mistake(
        "blocks added",
        lambda query, blocks: sum(_softmax_each(query, blocks)),
        "You take the softmax inside of each block, and add the results: the weights sum to the number of "
        "blocks.",
        "where you divide: once, after the last block.",
    ),
    Mistake(
        "divided in each block",
        _divided_in_each,
        "You divide by the sum in every block, so what came early is divided again and again.",
        "where you divide: once, after the last block.",
    ),
    Mistake(
        "never divided",
        _onlining(divide=lambda output, total: output),
        "You return the weighted sum without dividing it by the sum of the exponentials.",
        "the last line.",
    ),
    Mistake(
        "first block only",
        _first_block,
        "Your output is that of the first block.",
        "a return inside of the loop.",
    ),
    Mistake(
        "last block only",
        _last_block,
        "Your output is that of the last block.",
        "what you carry from block to block: it is set, and not added to.",
    ),
    Mistake(
        "not scaled",
        _onlining(scale=lambda query, value: 1.0),
        "The scores are not divided by the square root of the width.",
        "the score of scaled dot-product attention.",
    ),
    Mistake(
        "scaled by the values' width",
        _onlining(scale=lambda query, value: value.shape[-1] ** -0.5),
        "The scores are divided by the square root of the values' width, instead of the queries'.",
        "query.shape[-1].",
    ),
    Mistake(
        "no maximum",
        _no_maximum,
        "You take exp of the scores as they are. exp of a large score is inf, and inf / inf is NaN.",
        "the highest score so far, which is subtracted before exp.",
    ),
    Mistake(
        "mask ignored",
        _onlining(hide=lambda scores, mask: scores),
        "The hidden keys get weight: the mask does not enter.",
        "the third part of each block.",
    ),
    Mistake(
        "mask multiplied into the scores",
        _onlining(hide=lambda scores, mask: scores * mask[:, None]),
        "A hidden key has the score 0, and exp(0) = 1 is weight.",
        "the value a hidden key needs, so that its exponential is 0.",
        ("ms-01",),
    ),
    Mistake(
        "a hidden block gives NaN",
        _onlining(safe=False, divide=lambda output, total: output / total),
        "Where nothing of the first blocks may be seen, the highest score is -inf, and -inf - (-inf) is NaN.",
        "what you subtract there: any finite number will do, since all exponentials are 0.",
        ("ms-09",),
    ),
    Mistake(
        "an empty row is NaN",
        _onlining(divide=lambda output, total: output / total),
        "A sentence that may see nothing at all divides 0 by 0.",
        "the division: where the sum is 0, the output is zeros.",
        ("ms-09",),
    ),
    Mistake(
        "an empty row is uniform",
        _empty_uniform,
        "A sentence that may see nothing at all gets the mean of the hidden values: a finite fill is the "
        "same "
        "everywhere, and its exponentials are 1 where nothing is higher.",
        "multiplying the exponentials by the mask as well, or -inf as the fill.",
        ("ms-09",),
    ),
    Mistake(
        "gradient cut",
        lambda query, blocks: _online(query, blocks).detach(),
        "No gradient comes back from the output.",
        ".detach(), .data, .numpy() and torch.no_grad(). (The highest score may be detached, nothing else.)",
    ),
)


def _two_to_the_power(query, blocks):
    """In powers of 2, with the highest score outside of the gradient."""
    log2e = 1.4426950408889634
    lowest = torch.finfo(query.dtype).min
    top = query.new_full(query.shape[:2], lowest)
    total = query.new_zeros(query.shape[:2])
    output = query.new_zeros(())
    for key, value, mask in blocks:
        scores = torch.einsum("btw,bsw->bts", query * (log2e / query.shape[-1] ** 0.5), key)
        scores = torch.where(mask[:, None, :], scores, lowest)
        new_top = torch.maximum(top, scores.max(-1).values).detach()
        parts = torch.exp2(scores - new_top[..., None]) * mask[:, None]
        factor = torch.exp2(top - new_top)
        total = total * factor + parts.sum(-1)
        output = output * factor[..., None] + torch.einsum("bts,bsv->btv", parts, value)
        top = new_top
    return output / torch.clamp(total, min=1e-30)[..., None]


def _key_by_key(query, blocks):
    state = None
    for key, value, mask in blocks:
        for s in range(key.shape[1]):
            score = (query @ key[:, s, :, None]) / query.shape[-1] ** 0.5  # (batch, target, 1)
            seen = mask[:, s, None, None]
            if state is None:
                state = (
                    torch.full_like(score, -1e30),
                    torch.zeros_like(score),
                    torch.zeros((), dtype=query.dtype),
                )
            top, total, output = state
            new_top = torch.where(seen, torch.maximum(top, score), top)
            part = torch.where(seen, torch.exp(torch.where(seen, score - new_top, 0.0)), 0.0)
            old = torch.exp(top - new_top)
            state = (new_top, total * old + part, output * old + part * value[:, s, None])
    _, total, output = state
    return torch.where(total > 0, output / torch.where(total > 0, total, 1.0), 0.0)


def _by_log_sums(query, blocks):
    """Keeps the divided output, and the logarithm of the sum as its weight."""
    output, logsum = 0.0, query.new_full((*query.shape[:2], 1), -1e30)
    for key, value, mask in blocks:
        scores = (query @ key.mT / query.shape[-1] ** 0.5).masked_fill(~mask[:, None], -1e30)
        block = scores.logsumexp(-1, keepdim=True)
        new = torch.logaddexp(logsum, block)
        output = output * (logsum - new).exp() + ((scores - new).exp() * mask[:, None]) @ value
        logsum = new
    return output


ATTENTION_IN_BLOCKS = Exercise(
    question=find("08.5"),
    title="attention in blocks",
    minutes=25,
    difficulty=3,
    reference=_blocks_reference,
    axes={"output": "batch, target, value"},
    parts=(
        Part(
            "block by block, and equal to the softmax of all",
            1,
            _draw_blocks,
            ("output", "gradient of query", "gradient of key", "gradient of value"),
            "two blocks of one key each, by hand: what do the three running numbers hold?",
            (_blocks_are_let_go,),
        ),
        Part(
            "hidden keys, hidden blocks and large scores",
            1,
            _draw_blocks_edges,
            ("output", "gradient of query", "gradient of key", "gradient of value"),
            "what your loop does with a block in which everything is hidden.",
        ),
    ),
    mistakes=BLOCK_MISTAKES,
    variants=(
        Variant("-inf, with a finite stand-in", _onlining()),
        Variant("powers of 2, the highest score detached", _two_to_the_power),
        Variant("one key at a time", _key_by_key),
        Variant("the logarithm of the sum", _by_log_sums),
    ),
    forbidden=("torch.nn.functional.scaled_dot_product_attention", "course_utils.models"),
)


# --- 08.6 linear attention ----------------------------------------------------------------------------------


def _features(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def _linear(inputs: Inputs) -> Outputs:
    """Float64 reference: every word sums over all words up to itself, and over the state."""
    query, key, value, memory, total = (
        inputs[name].astype(np.float64) for name in ("query", "key", "value", *STATE)
    )
    query, key = _features(query), _features(key)
    weights = np.tril(query @ key.swapaxes(1, 2))
    above = weights @ value + query @ memory
    below = weights.sum(-1) + (query * total[:, None]).sum(-1)
    return {
        "output": above / below[..., None],
        "memory": memory + key.swapaxes(1, 2) @ value,
        "total": total + key.sum(1),
    }


def _linear_reference(inputs: Inputs) -> Outputs:
    expected = _linear(inputs)
    if "upstream" in inputs:
        for name in ("query", "key", "value", *STATE):
            expected[f"gradient of {name}"] = numeric_gradient(
                lambda given: _linear(given)["output"], inputs, name
            )
    return expected


def _linear_inputs(
    rng: Generator, pieces: list[int], batch: int, width: int, value: int, past: bool = True
) -> Inputs:
    length = sum(pieces)
    return {
        "query": normal(rng, batch, length, width),
        "key": normal(rng, batch, length, width),
        "value": normal(rng, batch, length, value),
        "memory": normal(rng, batch, width, value) * past,
        "total": (rng.uniform(0.5, 2, (batch, width)) * past).astype("float32"),
        "pieces": pieces,
    }


def _draw_linear(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 88])
    tiny = _linear_inputs(rng, [2], 1, 1, 1, past=False)
    batch, width, value = sizes(rng, 3)
    return [
        {name: part.round(1) if isinstance(part, np.ndarray) else part for name, part in tiny.items()},
        _linear_inputs(rng, [1, 1], 1, 2, 3, past=False),
        _linear_inputs(rng, [5], 2, 3, 4),
        _linear_inputs(rng, [1, 4, 2], batch, width, value, past=False),
        _linear_inputs(rng, [3, 1, 2], batch, width, value),
        _linear_inputs(rng, [2, 1], 2, 3, 2) | {"upstream": normal(rng, 2, 3, 2)},
    ]


def _no_future_in_a_piece(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    """Where the future gets in, the last word of a piece is right, and those before it are not."""
    right = abs(outputs["output"] - expected["output"]).max(axis=(0, 2)) < 1e-4
    last = np.cumsum(inputs["pieces"]) - 1
    others = np.setdiff1d(np.arange(len(right)), last)
    if right[last].all() and len(others) and not right[others].any():
        return _named(LINEAR_MISTAKES, "the future is seen", "output")
    return None


def _phi(x: torch.Tensor) -> torch.Tensor:
    return F.elu(x) + 1


def _linear_attention(
    query,
    key,
    value,
    state,
    *,
    query_features: Callable = _phi,
    key_features: Callable = _phi,
    visible: Callable = torch.tril,
    see: Callable = lambda memory, total: (memory, total),
    divide: bool = True,
    keep: Callable = lambda old, new: tuple(a + b for a, b in zip(old, new, strict=True)),
):
    """What most mistakes below start from."""
    query, key = query_features(query), key_features(key)
    weights = visible(query @ key.mT)
    memory, total = see(*state)
    above = weights @ value + query @ memory
    below = weights.sum(-1, keepdim=True) + query @ total[..., None]
    return above / below if divide else above, keep(state, (key.mT @ value, key.sum(1)))


def _linearly(**options) -> Callable:
    return lambda query, key, value, state: _linear_attention(query, key, value, state, **options)


def _softmax_attention(query, key, value, state):
    scores = (query @ key.mT / query.shape[-1] ** 0.5).masked_fill(
        ~torch.ones(query.shape[1], key.shape[1], dtype=torch.bool).tril(), -INF
    )
    return scores.softmax(-1) @ value, _linear_attention(query, key, value, state)[1]


def _state_in_place(query, key, value, state):
    output, (memory, total) = _linear_attention(query, key, value, state)
    with torch.no_grad():
        state[0].copy_(memory)
        state[1].copy_(total)
    return output, (memory, total)


LINEAR_MISTAKES = (
    Mistake(
        "the future is seen",
        _linearly(visible=lambda weights: weights),
        "Words see words after them: inside of a piece every word sums over the whole piece.",
        "the causal part, torch.tril of the products of queries and keys.",
    ),
    Mistake(
        "a word does not see itself",
        _linearly(visible=lambda weights: weights.tril(-1)),
        "A word sums over the words before it, and not over itself: its output comes before its key is "
        "added.",
        "the order of adding to the state and reading from it, or the diagonal.",
    ),
    Mistake(
        "the past is forgotten",
        _linearly(see=lambda memory, total: (memory * 0, total * 0)),
        "Each piece starts anew: what the state holds does not enter the output.",
        "the two sums: each has a share from the state and a share from the piece.",
    ),
    Mistake(
        "the past is not divided by",
        _linearly(see=lambda memory, total: (memory, total * 0)),
        "The past enters the sum above the fraction bar, and not the one below.",
        "`total`, the sum of the keys' features so far.",
    ),
    Mistake(
        "the state stays",
        _linearly(keep=lambda old, new: old),
        "You return the state as it was: the piece is not added to it.",
        "the new state.",
    ),
    Mistake(
        "the state is replaced",
        _linearly(keep=lambda old, new: new),
        "Your new state is that of the piece alone: what came before is lost.",
        "the new state: the old one plus the sums over the piece.",
    ),
    Mistake(
        "the total is replaced",
        _linearly(keep=lambda old, new: (old[0] + new[0], new[1])),
        "`memory` grows, but `total` is that of the piece alone.",
        "the second part of the new state.",
    ),
    Mistake(
        "features missing",
        _linearly(query_features=lambda x: x, key_features=lambda x: x),
        "You multiply queries and keys as they are. Their products may be negative, and the sum below may "
        "be 0.",
        "elu(x) + 1, for the queries and for the keys.",
    ),
    Mistake(
        "features of the queries alone",
        _linearly(key_features=lambda x: x),
        "The keys are used as they are: they need elu(x) + 1 as well.",
        "both sides of the product, and the state.",
    ),
    Mistake(
        "features of the keys alone",
        _linearly(query_features=lambda x: x),
        "The queries are used as they are: they need elu(x) + 1 as well.",
        "both sides of the product.",
    ),
    Mistake(
        "elu without the 1",
        _linearly(query_features=F.elu, key_features=F.elu),
        "You use elu(x), which may be negative, instead of elu(x) + 1.",
        "the features.",
    ),
    Mistake(
        "not divided",
        _linearly(divide=False),
        "Your outputs are sums, not weighted means: nothing divides them.",
        "the sum below the fraction bar.",
    ),
    Mistake(
        "scaled",
        lambda query, key, value, state: _linear_attention(query / query.shape[-1] ** 0.5, key, value, state),
        "You divide the queries by the square root of their width. There is no softmax here that would need "
        "it.",
        "a factor that the equation does not have.",
    ),
    Mistake(
        "softmax",
        _softmax_attention,
        "Your weights are those of a softmax. They cannot be taken apart into a share of the query and one "
        "of the key.",
        "the features, which stand in the place of exp.",
    ),
    Mistake(
        "the state is cut off",
        lambda query, key, value, state: (
            (found := _linear_attention(query, key, value, state))[0],
            tuple(part.detach() for part in found[1]),
        ),
        "No gradient passes from one piece to the piece before it: the state is detached.",
        ".detach() on the new state.",
    ),
    Mistake(
        "writes into the state",
        _state_in_place,
        "You write into the state that you were given. The caller may still need it.",
        "+= and operations that end in an underscore.",
    ),
)


def _word_by_word(query, key, value, state):
    memory, total = state
    outputs = []
    for t in range(query.shape[1]):
        q, k = F.elu(query[:, t]) + 1, F.elu(key[:, t]) + 1
        memory = memory + k[:, :, None] * value[:, t, None]
        total = total + k
        outputs.append(torch.einsum("bw,bwv->bv", q, memory) / (q * total).sum(-1, keepdim=True))
    return torch.stack(outputs, 1), (memory, total)


def _by_running_sums(query, key, value, state):
    q, k = torch.nn.functional.elu(query) + 1, torch.nn.functional.elu(key) + 1
    memories = state[0][:, None] + (k[..., None] * value[:, :, None]).cumsum(1)
    totals = state[1][:, None] + k.cumsum(1)
    output = (q[..., None] * memories).sum(2) / ((q * totals).sum(-1, keepdim=True) + 1e-8)
    return [output, [memories[:, -1], totals[:, -1]]]


def _features_by_where(query, key, value, state):
    def features(x):
        return torch.where(x > 0, x + 1, x.clamp(max=0).exp())

    return _linear_attention(query, key, value, state, query_features=features, key_features=features)


LINEAR_ATTENTION = Exercise(
    question=find("08.6"),
    title="linear attention in pieces",
    minutes=15,
    difficulty=2,
    reference=_linear_reference,
    axes={"output": "batch, length, value", "memory": "batch, width, value", "total": "batch, width"},
    parts=(
        Part(
            "the same in one piece, in several, and word by word",
            1,
            _draw_linear,
            (
                "output",
                "memory",
                "total",
                *(f"gradient of {name}" for name in ("query", "key", "value", *STATE)),
            ),
            "a piece of two words by hand, and then the same as two pieces of one.",
            (_no_future_in_a_piece,),
        ),
    ),
    mistakes=LINEAR_MISTAKES,
    variants=(
        Variant("in parallel inside of a piece", _linear_attention),
        Variant("word by word", _word_by_word),
        Variant("running sums, an epsilon, lists", _by_running_sums),
        Variant("elu + 1 written out", _features_by_where),
    ),
)

EXERCISES = [
    BERT_CORRUPTION,
    CAUSAL_LOSS,
    SPAN_CORRUPTION,
    FOUR_MASKS,
    ATTENTION_IN_BLOCKS,
    LINEAR_ATTENTION,
]
