"""Sentences to tokens and back, and the vocabulary that numbers the tokens.

`detokenise` undoes `tokenise`: for the tokens of any text, `tokenise(detokenise(tokens)) == tokens`.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIAL_WORDS = ("<pad>", "<bos>", "<eos>", "<unk>")

NO_BREAK_SPACE = "\u00a0"


def _mark_ranges() -> str:
    """Combining marks and joiners of the basic plane, as ranges for a character class.

    Python's `\\w` leaves them out, and with them the vowel signs of many scripts.
    """
    codes = [code for code in range(0x300, 0x10000) if unicodedata.category(chr(code))[0] == "M"]
    codes = {*codes, 0x200C, 0x200D}  # the zero-width joiners
    starts = sorted(code for code in codes if code - 1 not in codes)
    ends = sorted(code for code in codes if code + 1 not in codes)
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in zip(starts, ends, strict=True))


_MARKS = _mark_ranges()
_WORD = rf"\w[\w{_MARKS}]*"
_NOT_IN_WORD = rf"(?![\w{_MARKS}])"
_NUMBER = r"\d+(?:[.,:]\d+)+"  # 3.5, 10,000 and 10:30; plain digits are words
_SYMBOL = rf"\.\.+|--+|\S[{_MARKS}]*"  # dots or dashes in a row are one token, other marks stand alone

# English: do|n't and it|'s, as in the Penn treebank.
_CONTRACTION = rf"'(?:s|re|ve|ll|m|d){_NOT_IN_WORD}"
_ENGLISH_SUFFIX = re.compile(rf"(.*[\w{_MARKS}])(n't|{_CONTRACTION})", re.IGNORECASE)

# French: l'|homme. The words aujourd'hui and quelqu'un stay whole, as nothing elided opens them.
_ELISION = r"(?:[cdjlmnst]|qu|jusqu|lorsqu|puisqu|quoiqu)'"
# French: avez|-vous, a|-t-il, donnez|-le|-moi; but Fontenay-le-Comte and celui-là stay whole.
_CLITIC = r"-(?:t-)?(?:je|tu|ils?|elles?|on|nous|vous|ce|moi|toi|les?|la|lui|leur|en|y)"
_CLITIC_END = rf"(?:{_CLITIC})*{_NOT_IN_WORD}(?!['-]\w)"

_PATTERNS = {
    "en": rf"{_CONTRACTION}|{_NUMBER}|{_WORD}(?:['-]{_WORD})*|{_SYMBOL}",
    "fr": rf"{_ELISION}|{_CLITIC}(?={_CLITIC_END})|{_NUMBER}"
    rf"|{_WORD}(?:(?!{_CLITIC}{_CLITIC_END})['-]{_WORD})*|{_SYMBOL}",
    "other": rf"{_NUMBER}|{_WORD}(?:['-]{_WORD})*|{_SYMBOL}",
}
_TOKEN = {language: re.compile(pattern, re.IGNORECASE) for language, pattern in _PATTERNS.items()}

# One apostrophe; invisible marks of typesetting (soft hyphen, zero-width space, byte-order mark) go.
_CLEAN = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "\u00ad": None, "\u200b": None, "\ufeff": None})

_SPACE_AFTER_ONLY = frozenset([",", ".", "..", "...", "…", ")", "]", "}", "”"])
_SPACE_BEFORE_ONLY = frozenset(["(", "[", "{", "“", "„", "¿", "¡", "#"])
_CURRENCIES = frozenset("$£€")  # against a number after them, as in $5
_FRENCH_NO_BREAK = frozenset("?!;:»%")


def tokenise(text: str, language: str, *, lower: bool = True) -> list[str]:
    """The words and punctuation marks of `text`.

    Text is put into Unicode's composed form (NFC) with one kind of apostrophe, and lower-cased unless
    `lower=False`. Any white space separates, no-break and thin spaces included. Punctuation stands
    alone; numbers (3.5, 10:30) and hyphenated words stay whole.

    - "en" splits contractions: do|n't, it|'s.
    - "fr" splits elisions (l'|homme, jusqu'|à) and pronouns after a hyphen (avez|-vous, a|-t-il), and
      keeps aujourd'hui, quelqu'un, peut-être, celui-là.
    - any other language: the common rules alone. They need a language that puts spaces between words.
    """
    text = text.translate(_CLEAN)
    text = unicodedata.normalize("NFC", text.lower() if lower else text)
    tokens = _TOKEN[language if language in _TOKEN else "other"].findall(text)
    if language == "en" and "'" in text:
        tokens = [piece for token in tokens for piece in _split_contractions(token)]
    return tokens


def _split_contractions(token: str) -> list[str]:
    """couldn't've -> could n't 've"""
    suffixes = []
    while match := _ENGLISH_SUFFIX.fullmatch(token):
        token, suffix = match.groups()
        suffixes.append(suffix)
    return [token, *reversed(suffixes)]


def detokenise(tokens: Iterable[str], language: str) -> str:
    """Readable text out of tokens, spaced as the language's typography wants it.

    In French a no-break space (U+00A0) stands before ? ! ; : % and inside « », so that no line can
    break there; in other languages these marks follow the word directly. Straight quotes open and close
    in turn. A space is left out only where `tokenise` finds the same tokens without it.
    """
    text, previous, open_quotes = "", "", set()
    for token in tokens:
        if previous:
            text += _space(previous, token, language, open_quotes)
        if token == '"' or (token == "'" and not _is_possessive(previous, token, language, open_quotes)):
            open_quotes ^= {token}
        text += token
        previous = token
    return text


def _space(left: str, right: str, language: str, open_quotes: set[str]) -> str:
    """What stands between two tokens; `open_quotes` holds the straight quotes open after `left`."""
    if language == "fr" and (right in _FRENCH_NO_BREAK or left == "«"):
        return NO_BREAK_SPACE
    tight = (
        right in _SPACE_AFTER_ONLY
        or right in _FRENCH_NO_BREAK
        or left in _SPACE_BEFORE_ONLY
        or (left in _CURRENCIES and right[0].isdigit())
        or "/" in (left, right)
        or (left in ("'", '"') and left in open_quotes)
        or (right in ("'", '"') and right in open_quotes)
        or (left[-1].isalnum() and _is_suffix(right, language))
        or _is_possessive(left, right, language, open_quotes)
        or (language == "fr" and len(left) > 1 and left.endswith("'"))
        or (language != "fr" and left == "«")
    )
    return "" if tight and _stay_apart(left, right, language) else " "


def _is_suffix(token: str, language: str) -> bool:
    if language == "en":
        return token.lower() == "n't" or (token.startswith("'") and len(token) > 1)
    return language == "fr" and token.startswith("-") and len(token) > 1


def _is_possessive(left: str, right: str, language: str, open_quotes: set[str]) -> bool:
    """the boys' house: an apostrophe after an s, where no quotation is open"""
    return language == "en" and right == "'" and left.endswith("s") and right not in open_quotes


@lru_cache(maxsize=2**16)
def _stay_apart(left: str, right: str, language: str) -> bool:
    """Does `tokenise` still find two tokens when no space stands between them?"""
    return tokenise(left + right, language, lower=False) == [left, right]


class Vocabulary:
    """The words of one language, numbered: 0 to 3 are `<pad> <bos> <eos> <unk>`, then the given words.

    Vocabulary(words) takes the words in the order of their numbers (special words among them are
    skipped, so that `Vocabulary(other.words)` is a copy); usually `Vocabulary.from_sentences` is
    what you want. Raises ValueError for a word given twice.
    """

    def __init__(self, words: Iterable[str]):
        self.words = [*SPECIAL_WORDS, *(word for word in words if word not in SPECIAL_WORDS)]
        self._ids = {word: number for number, word in enumerate(self.words)}
        if len(self._ids) < len(self.words):
            twice = next(word for word, count in Counter(self.words).items() if count > 1)
            raise ValueError(f"the word {twice!r} is given twice; a vocabulary numbers each word once")

    @classmethod
    def from_sentences(
        cls, sentences: Iterable[Iterable[str]], *, min_count: int = 1, max_size: int | None = None
    ) -> "Vocabulary":
        """All words seen at least `min_count` times, the most frequent first, ties in alphabetical order.

        `max_size` bounds len(vocabulary), the four special words included. Raises ValueError when
        no word is left or `max_size` has no room for one, TypeError for sentences that are not tokenised.
        """
        if max_size is not None and max_size <= len(SPECIAL_WORDS):
            raise ValueError(
                f"max_size={max_size} leaves no room for words: {len(SPECIAL_WORDS)} places are taken by "
                f"{' '.join(SPECIAL_WORDS)}; give at least {len(SPECIAL_WORDS) + 1}"
            )
        counts = Counter(word for sentence in sentences for word in _tokens(sentence))
        for word in SPECIAL_WORDS:
            del counts[word]
        words = sorted((word for word in counts if counts[word] >= min_count), key=lambda w: (-counts[w], w))
        if not words:
            raise ValueError(
                f"no word occurs {min_count} times or more in the sentences ({len(counts)} different words "
                "seen); give more text or a smaller min_count"
            )
        return cls(words[: max_size and max_size - len(SPECIAL_WORDS)])

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.words == other.words

    __hash__ = None

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} words: {' '.join(self.words[4:9])} …)"

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """The numbers of the tokens; an unknown one becomes UNK (`unknown` says which)."""
        return [self._ids.get(token, UNK) for token in _tokens(tokens)]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words of the numbers (a list or a 1-D tensor) up to the first EOS; PAD and BOS are dropped.

        Raises IndexError for a number outside the vocabulary.
        """
        words = []
        for number in ids.tolist() if hasattr(ids, "tolist") else ids:
            if not 0 <= number < len(self):
                raise IndexError(
                    f"{number} is no word of this vocabulary, whose numbers run from 0 to {len(self) - 1}; "
                    "were the ids made with another vocabulary (source and target swapped)?"
                )
            if number == EOS:
                break
            if number not in (PAD, BOS):
                words.append(self.words[number])
        return words

    def unknown(self, tokens: Iterable[str]) -> list[str]:
        """The tokens that the vocabulary lacks, each once, in the order of the sentence."""
        return list(dict.fromkeys(token for token in _tokens(tokens) if token not in self._ids))


def _tokens(sentence: Iterable[str]) -> Iterable[str]:
    if isinstance(sentence, str):
        raise TypeError(f"expected a list of tokens, got the string {sentence!r}; tokenise it first")
    return sentence


def shortened(text: str, limit: int = 60) -> str:
    """A text that fits into a message."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
