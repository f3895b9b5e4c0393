"""Sentence pairs to learn from: made by a grammar with gold alignments, or real text."""

from .batches import Batch, Batches, make_batch
from .pairs import Corpus, Pair, split
from .text import BOS, EOS, PAD, UNK, Vocabulary, detokenise, tokenise

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "Batch",
    "Batches",
    "Corpus",
    "Pair",
    "Vocabulary",
    "detokenise",
    "make_batch",
    "split",
    "tokenise",
]
