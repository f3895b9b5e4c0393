"""Texts of students made harmless for a terminal, a spreadsheet and a file system."""

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Sequence

# What Windows keeps for devices, whatever the ending.
_RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}
# The first characters with which spreadsheets take a text for a formula, in both widths.
_FORMULA = tuple("=+-@＝＋－＠")
_LAYOUT = dict.fromkeys(map(ord, "\n\t"))
_REPLACED = "\N{REPLACEMENT CHARACTER}"
LONGEST_NAME = 120  # bytes


def printable(text: str) -> str:
    """`text` with line feeds and tabs, but without what commands a terminal or turns the reading direction.

    Control characters (escape sequences begin with one), marks of direction, and halves of surrogate pairs
    become the replacement character, so that the text can be written as UTF-8 and as XML.
    """
    if text.translate(_LAYOUT).isprintable():  # nearly always, and found out much sooner
        return text
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


def short(text: str, width: int = 60) -> str:
    """`text` in one line of at most `width` characters."""
    text = line(text)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def file_names(submissions: Sequence[tuple[str, str]]) -> list[str]:
    """A file name without ending for each (student, file), safe on every system, no two alike.

    It is the student's name where no other has it, else with a hash of both, so that a submission keeps its
    name from run to run.
    """
    stems = [_stem(student) for student, _ in submissions]
    often = Counter(map(_folded, stems))
    names: list[str] = []
    taken: set[str] = set()
    for stem, submission in zip(stems, submissions, strict=True):
        name = f"{stem}-{_digest(*submission)}" if often[_folded(stem)] > 1 else stem
        while _folded(name) in taken:  # a student may be called what the name of another became
            name += "_"
        taken.add(_folded(name))
        names.append(name)
    return names


def _stem(student: str) -> str:
    """Letters and digits of any script, hyphens and underscores; "Zoë B." becomes "Zoë_B"."""
    kept = "".join(c if c in "-_" or unicodedata.category(c)[0] in "LMN" else " " for c in student)
    stem = "_".join(unicodedata.normalize("NFC", kept).split()).strip("_-")
    stem = stem.encode()[:LONGEST_NAME].decode(errors="ignore") or "student"
    return f"{stem}_" if stem.casefold() in _RESERVED else stem


def _folded(name: str) -> str:
    """What file systems that care neither for case nor for the form of accents take for the same."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def _digest(student: str, file: str) -> str:
    return hashlib.sha256(f"{student}\0{file}".encode(errors="surrogatepass")).hexdigest()[:8]
