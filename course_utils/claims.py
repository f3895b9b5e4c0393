"""What the lessons claim, what they measured for it, and whether it holds.

A lesson calls `claim` once for each statement it makes; the built notebook then carries a line for the
reader and the same as JSON in the output's metadata, from which `read` collects the ledger that
`course claims` prints.
"""

import json
import re
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

_ID = re.compile(r"\d\d\.[1-9]\d?")


class ClaimError(ValueError):
    """A claim is malformed, or two of them share an id."""


@dataclass(frozen=True)
class Claim:
    """One statement of a lesson: its `id` ("04.5"), the `sentence`, whether it `holds`, what was `measured`.

    `source` says where the evidence stands: measured above, or a paper with its table.

    Raises:
        ClaimError: the id is not of the form "04.5", `holds` is not a bool, or a text is empty or has
            several lines.
    """

    id: str
    sentence: str
    holds: bool
    measured: str
    source: str = "measured above"

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not _ID.fullmatch(self.id):
            raise ClaimError(f'claim id {self.id!r}: write lesson and number, such as "04.5"')
        if not isinstance(self.holds, bool):
            raise ClaimError(f"claim {self.id}: holds is {self.holds!r}; give True or False")
        for name in ("sentence", "measured", "source"):
            text = getattr(self, name)
            if not isinstance(text, str) or not text.strip() or len(text.splitlines()) > 1:
                raise ClaimError(f"claim {self.id}: {name} is {text!r}; give one line of text")

    @property
    def lesson(self) -> str:
        """The lesson's two digits, such as "04"."""
        return self.id[:2]

    def as_dict(self) -> dict[str, str | bool]:
        """The claim as plain data, ready for JSON."""
        return {"lesson": self.lesson, **asdict(self)}

    def __str__(self) -> str:
        # What was measured stands last: nbval sanitises it away and compares the rest.
        return f"claim {self.id} | holds: {self.holds} | {self.sentence} | measured: {self.measured}"


def claim(id: str, sentence: str, *, holds: bool, measured: str, source: str = "measured above") -> None:
    """Record a claim: one readable line; in a notebook the output's metadata carries the claim as JSON.

    `holds` may be any truth value of one element (a NumPy or torch bool too). A claim that does not hold is
    recorded as such and does not raise: the reader sees it, and `course claims` and the tests report it.

    Raises:
        ClaimError: see `Claim`.
    """
    made = Claim(id, sentence, holds.item() if hasattr(holds, "item") else holds, measured, source)
    if _in_ipython():
        from IPython.display import display

        display({"text/plain": str(made)}, raw=True, metadata={"claim": made.as_dict()})
    else:
        print(made)


def read(paths: Iterable[str | Path]) -> list[Claim]:
    """The claims stored in built notebooks, sorted by id.

    Raises:
        ClaimError: a file is no notebook, a claim is malformed, or two claims share an id.
        FileNotFoundError: a file is not there.
    """
    found: dict[str, tuple[Claim, Path]] = {}
    for path in map(Path, paths):
        for entry in _entries(path):
            try:
                made = Claim(**{name: value for name, value in entry.items() if name != "lesson"})
            except (TypeError, AttributeError, ClaimError) as error:
                raise ClaimError(f"{path}: a stored claim is malformed: {error}") from error
            if made.id in found:
                raise ClaimError(f"claim {made.id} stands twice: in {found[made.id][1]} and in {path}")
            found[made.id] = made, path
    return sorted((made for made, _ in found.values()), key=_order)


def _order(made: Claim) -> tuple[int, ...]:
    return tuple(map(int, made.id.split(".")))


def _entries(path: Path) -> list[dict]:
    # Plain json: importing nbformat costs over a second, and the ledger needs nothing of it.
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        outputs = [output for cell in cells for output in cell.get("outputs", [])]
        return [output["metadata"]["claim"] for output in outputs if "claim" in output.get("metadata", {})]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ClaimError(f"{path} is not a notebook: {error}") from error


def _in_ipython() -> bool:
    # Where IPython runs it is imported already; elsewhere there is no need to.
    return "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None
