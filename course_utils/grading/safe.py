"""Texts of students made harmless for a terminal, a spreadsheet and a file system."""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

# What Windows keeps for devices, whatever the ending.
_RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}
# The first characters with which spreadsheets take a text for a formula, in both widths.
_FORMULA = tuple("=+-@＝＋－＠")
_REPLACED = "\N{REPLACEMENT CHARACTER}"
LONGEST_NAME = 60


def printable(text: str) -> str:
    """`text` with line feeds and tabs, but without what commands a terminal or turns the reading direction.

    Control characters (escape sequences begin with one), marks of direction, and halves of surrogate pairs
    become the replacement character, so that the text can be written as UTF-8 and as XML.
    """
    return "".join(_REPLACED if _commands(character) else character for character in text)


def _commands(character: str) -> bool:
    if character in "\n\t":
        return False
    return (
        unicodedata.category(character) in ("Cc", "Cs", "Co", "Zl", "Zp")
        or unicodedata.bidirectional(character)
        in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        or character in "\ufffe\uffff"
    )


def line(text: str) -> str:
    """`text` in one line."""
    return " ".join(printable(text).split())


def cell(text: str) -> str:
    """`text` for a cell of a table: one line, and never a formula (a leading = + - @ gets an apostrophe)."""
    text = line(text)
    return f"'{text}" if text.startswith(_FORMULA) else text


def file_names(students: Sequence[tuple[str, str]]) -> list[str]:
    """A file name (without ending) for each (student, file): the student's own where that is safe and unique.

    Any other gets a few digits of a hash of both, so that the same submission keeps its name from run to run.
    """
    stems = [_stem(student) for student, _ in students]
    often = Counter(stem.casefold() for stem in stems)
    names = []
    for stem, (student, file) in zip(stems, students, strict=True):
        if stem != student or often[stem.casefold()] > 1 or stem.casefold() in _RESERVED:
            key = f"{student}\0{file}".encode(errors="surrogatepass")
            stem = f"{stem}-{hashlib.sha256(key).hexdigest()[:8]}"
        names.append(stem)
    return names


def _stem(student: str) -> str:
    """ASCII letters, digits, hyphens and underscores; "Zoë B." becomes "Zoe_B"."""
    plain = unicodedata.normalize("NFKD", student).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9_-]+", "_", plain).strip("_-")[:LONGEST_NAME] or "student"
