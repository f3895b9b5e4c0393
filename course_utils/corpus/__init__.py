"""Sentence pairs to learn from: made by a grammar with gold alignments, or real text."""

from . import grammar
from .batches import Batch, Batches, make_batch
from .pairs import Corpus, Pair, split
from .real import emoji_names, from_file, multi30k, tatoeba
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
    "emoji_names",
    "from_file",
    "grammar",
    "make_batch",
    "multi30k",
    "split",
    "tatoeba",
    "tokenise",
]
