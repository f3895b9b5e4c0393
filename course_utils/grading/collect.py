"""Find what a class handed in: one Submission a student, from a folder or a zip.

Names and files come from students: nothing is unpacked or followed out of the folder, sizes are capped, and
whatever is odd becomes words about that student, never an error for the class.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from course_utils.grading import GradingError
from course_utils.grading.safe import line
from course_utils.grading.sheets import Cell, Sheet, Unreadable, has_answers, lesson_of, read

__all__ = ["Cell", "Sheet", "Submission", "Unreadable", "collect", "content", "read"]

NOTHING = "no file was handed in: the folder is empty"
LARGEST = 16 << 20  # bytes of a notebook; one with many pictures has about 2 MB
MOST_FILES = 100_000
DEEPEST = 12  # folders within folders


@dataclass(frozen=True)
class Submission:
    """One student's notebook, or why there is none.

    `file` is its path below the folder (or within the zip), for people; `path` the file to open, or the zip
    that holds it as entry number `member`. `account` is the number by which Canvas or Moodle knows the
    student, "" elsewhere. `problem` says why there is nothing to read.
    """

    student: str
    file: str
    path: Path
    member: int = -1
    account: str = ""
    late: bool = False
    problem: str = ""
    notes: tuple[str, ...] = ()


# --- what lies in a folder or a zip -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Entry:
    """A file below the submissions, or a folder (which counts only where it holds no file)."""

    parts: tuple[str, ...]
    path: Path
    member: int = -1
    size: int = 0
    when: float = 0.0
    folder: bool = False
    trouble: str = ""

    @property
    def name(self) -> str:
        return self.parts[-1]

    @property
    def label(self) -> str:
        return plain("/".join(self.parts))

    @property
    def notebook(self) -> bool:
        return not self.folder and bool(_NOTEBOOK.search(self.name))


_NOTEBOOK = re.compile(r"\.ipynb(\.(txt|json))?$", re.IGNORECASE)  # browsers add .txt or .json
_NOT_WORK = {"thumbs.db", "desktop.ini", "timestamp.txt", "gradebook.db", "__macosx", "__pycache__"}
_CONTAINERS = {"submitted", "submissions"}


def plain(text: str) -> str:
    """A name as it may be shown: one line without control characters, and not endless."""
    kept = line(unicodedata.normalize("NFC", text))
    return (kept if len(kept) <= 200 else f"{kept[:197]}...") or "(no name)"


def _ignored(name: str) -> bool:
    return name.startswith(".") or name.lower() in _NOT_WORK


def _in_folder(root: Path, skip: Sequence[Path]) -> Iterator[_Entry]:
    hidden = {path.resolve() for path in skip}
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        parts = waiting.pop()
        folder = root.joinpath(*parts)
        try:
            found = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            if not parts:
                raise GradingError(f"{root} cannot be read: {error.strerror}.") from None
            yield _Entry(parts, folder, trouble=f"the folder cannot be read: {error.strerror}")
            continue
        for entry in found:
            path = Path(entry.path)
            below = (*parts, entry.name)
            if _ignored(entry.name) or (hidden and path.resolve() in hidden):
                continue
            if entry.is_symlink():
                yield _Entry(below, path, trouble="it is a link to another place, which is not followed")
            elif entry.is_dir():
                yield _Entry(below, path, folder=True)
                if len(below) < DEEPEST:
                    waiting.append(below)
                else:
                    yield _Entry(below, path, trouble=f"more than {DEEPEST} folders deep")
            elif not entry.is_file():
                yield _Entry(below, path, trouble="it is not a plain file")
            else:
                known = entry.stat(follow_symlinks=False)
                yield _Entry(below, path, size=known.st_size, when=known.st_mtime)


@lru_cache(maxsize=1)  # reading the directory of a large zip for each of its students would take long
def _archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise GradingError(f"{path} is not a zip that can be read ({error}). Download it again.") from None
    except OSError as error:
        raise GradingError(f"{path} cannot be read: {error.strerror}.") from None


def _in_zip(path: Path) -> Iterator[_Entry]:
    for number, info in enumerate(_archive(path).infolist()):
        name = info.filename
        if not info.flag_bits & 0x800:  # not marked as UTF-8, which macOS writes all the same
            with suppress(UnicodeError):
                name = name.encode("cp437").decode("utf-8")
        # The parts are labels, never places to write to; so "..", drives and roots need no more than to go.
        parts = tuple(part for part in re.split(r"[/\\]", name) if part.strip() not in ("", ".", ".."))
        if not parts or any(map(_ignored, parts)):
            continue
        trouble = ""
        if stat.S_ISLNK(info.external_attr >> 16):
            trouble = "it is a link to another place, which is not followed"
        elif info.flag_bits & 0x1:
            trouble = "it is encrypted within the zip"
        elif len(parts) > DEEPEST:
            trouble, parts = f"more than {DEEPEST} folders deep", (*parts[: DEEPEST - 1], parts[-1])
        when = float("".join(f"{value:02}" for value in info.date_time))  # only its order matters
        yield _Entry(parts, path, number, info.file_size, when, name.endswith(("/", "\\")), trouble)


def _entries(source: Path, skip: Sequence[Path]) -> list[_Entry]:
    """Everything below `source`, without the folders that hold all of it."""
    if not source.exists():
        raise GradingError(f"{source} is not there.")
    inside_zip = source.is_file()
    entries = []
    for entry in _in_zip(source) if inside_zip else _in_folder(source, skip):
        entries.append(entry)
        if len(entries) > MOST_FILES:
            raise GradingError(f"{source} holds more than {MOST_FILES:,} files. Is it the right folder?")
    while True:
        tops = {entry.parts[0] for entry in entries}
        below = {entry.parts[1] for entry in entries if len(entry.parts) > 1}
        top = next(iter(tops), "")
        several = len(below) > 1 or below <= _CONTAINERS
        wrapped = len(tops) == 1 and (top.lower() in _CONTAINERS or (inside_zip and several))
        if "submitted" in tops:  # nbgrader's course folder, with source, release and feedback beside it
            top = "submitted"
        elif not wrapped or not below or _MOODLE.match(top):
            return entries
        entries = [
            _Entry(e.parts[1:], e.path, e.member, e.size, e.when, e.folder, e.trouble)
            for e in entries
            if e.parts[0] == top and len(e.parts) > 1
        ]


# --- whose is it --------------------------------------------------------------------------------------------

# "Full Name_12345_assignsubmission_file_/hw.ipynb", the same without the last "_", or as one flat name.
_MOODLE = re.compile(r"(?P<name>.+?)_(?P<account>\d+)_assignsubmission_(?P<kind>[a-z]+)(?:_(?P<file>.*))?$")
# "doejane_LATE_12345_67890_hw-1.ipynb"; where an assignment is anonymous, "anon_Ab3x_67890_hw.ipynb".
_CANVAS = re.compile(
    r"(?P<name>anon_[A-Za-z0-9]+|[^_]+)(?P<late>_LATE)?(?:_(?P<account>\d+))?_(?P<upload>\d+)_(?P<file>.+)$"
)
# A text or an address typed into Canvas: "doejane_12345_text.html".
_CANVAS_TEXT = re.compile(r"(?P<name>[^_]+)(?P<late>_LATE)?_(?P<account>\d+)_(?P<file>(?:text|link)\.html)$")
_AGAIN = re.compile(r"-(\d{1,3})(?=\.[^.]+$)")  # Canvas's mark of a resubmission


@dataclass(frozen=True)
class _Owned:
    """An entry, whose it is, and where it stands among that student's from old to new."""

    entry: _Entry
    name: str
    account: str = ""
    late: bool = False
    rank: tuple[float, ...] = ()


def _canvas(name: str) -> re.Match[str] | None:
    found = _CANVAS.match(name)
    if found and (found["account"] or found["name"].startswith("anon_")):
        return found
    return _CANVAS_TEXT.match(name)


def _is_canvas(loose: Sequence[_Entry]) -> bool:
    """Are these the files of a Canvas download? Names such as hw_2024_11_alice.ipynb look alike, so most
    must fit, and one "student" must not stand for a class: then each file has its own rest of the name."""
    fits = [found for entry in loose if (found := _canvas(entry.name))]
    people = {(found["name"], found["account"]) for found in fits}
    rests = {_AGAIN.sub("", found["file"]) for found in fits}
    return len(fits) * 2 > len(loose) and (len(people) > 1 or len(rests) == 1)


def _owned(entries: Sequence[_Entry]) -> list[_Owned]:
    canvas = _is_canvas([entry for entry in entries if len(entry.parts) == 1 and not entry.folder])
    return [_owner(entry, canvas) for entry in entries]


def _owner(entry: _Entry, canvas: bool) -> _Owned:
    head, loose = entry.parts[0], len(entry.parts) == 1 and not entry.folder
    moodle = _MOODLE.match(head)
    if moodle:
        return _Owned(entry, moodle["name"], moodle["account"], rank=(entry.when,))
    found = _canvas(head) if canvas and loose else None
    if found:
        again = _AGAIN.search(found["file"])
        upload = found.groupdict().get("upload") or 0
        rank = (float(again[1]) if again else 0.0, float(upload))
        return _Owned(entry, found["name"], found["account"] or "", bool(found["late"]), rank)
    name = _NOTEBOOK.sub("", head) if entry.notebook else Path(head).stem
    return _Owned(entry, name if loose else head, rank=(entry.when,))


def collect(source: Path, lesson: str = "", *, skip: Sequence[Path] = ()) -> list[Submission]:
    """One submission a student, in the order of their names; a student without a notebook has one, too.

    Understands a folder of notebooks (the student is the name of the file), a folder a student, nbgrader's
    submitted/STUDENT/ASSIGNMENT, the downloads of Canvas and Moodle, and a zip of any of these, which is
    read in place. Of a student's several notebooks, the newest of `lesson` counts. `skip` are paths below
    `source` that are no submissions.

    Raises:
        GradingError: `source` cannot be read, or nobody handed in anything.
    """
    source = Path(source)
    students: dict[tuple[str, str], list[_Owned]] = {}
    for owned in _owned(_entries(source, skip)):
        students.setdefault((unicodedata.normalize("NFC", owned.name), owned.account), []).append(owned)
    if not students:
        raise GradingError(f"{source} holds no submissions. Give a folder of notebooks, or an LMS's zip.")
    shown = _shown(list(students))
    found = [_submission(shown[key], key[1], owned, lesson) for key, owned in students.items()]
    return sorted(found, key=lambda submission: (submission.student.casefold(), submission.student))


def _shown(keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """A name for each student that no other one has."""
    plains = {key: plain(key[0]) for key in keys}
    often = Counter(plains.values())
    shown: dict[tuple[str, str], str] = {}
    taken = {name for name, count in often.items() if count == 1}
    for key, name in plains.items():
        number, wanted = 1, name
        if often[name] > 1:
            wanted = f"{name} ({key[1]})" if key[1] else name
            while wanted in taken:
                number += 1
                wanted = f"{name} ({number})"
        taken.add(wanted)
        shown[key] = wanted
    return shown


def _submission(student: str, account: str, owned: Sequence[_Owned], lesson: str) -> Submission:
    files = [one for one in owned if not one.entry.folder]
    if not files:
        entry = owned[0].entry
        return Submission(student, entry.label, entry.path, account=account, problem=NOTHING)
    notebooks = [one for one in files if one.entry.notebook]
    if not notebooks:
        chosen = max(files, key=lambda one: (one.rank, one.entry.parts))
        others = "" if len(files) == 1 else f" (and {_files(len(files) - 1)} more)"
        problem = chosen.entry.trouble or _no_notebook(chosen.entry.name)
        entry = chosen.entry
        return Submission(
            student, entry.label, entry.path, entry.member, account, chosen.late, f"{problem}{others}"
        )
    chosen, notes = _chosen(notebooks, lesson)
    entry = chosen.entry
    problem = entry.trouble or _too_large(entry.size)
    return Submission(
        student, entry.label, entry.path, entry.member, account, chosen.late, problem, tuple(notes)
    )


def _files(count: int) -> str:
    return "one file" if count == 1 else f"{count} files"


def _no_notebook(name: str) -> str:
    kind = Path(name).suffix.lower()
    if kind in (".zip", ".7z", ".rar", ".gz", ".tar", ".tgz"):
        return f"a {kind} archive was handed in, not a notebook: unpack it in place and grade again"
    if kind == ".html":
        return "a web page or a typed text was handed in, not a notebook"
    return f"a {kind} file was handed in, not a notebook" if kind else "a file without .ipynb was handed in"


def _too_large(size: int) -> str:
    return f"the file has {size / 1e6:,.0f} MB; a notebook may have {LARGEST >> 20} MB" * (size > LARGEST)


def _chosen(notebooks: Sequence[_Owned], lesson: str) -> tuple[_Owned, list[str]]:
    """The notebook that counts, and what to say of the others."""
    if len(notebooks) == 1:
        return notebooks[0], []
    lessons, answering = {}, set()
    for one in notebooks:
        lessons[one], answers = _peek(one.entry)
        answering |= {one} if answers else set()
    fitting = [one for one in notebooks if lessons[one] == lesson] if lesson else []
    fitting = fitting or [one for one in notebooks if not lessons[one]] or list(notebooks)
    fitting = [one for one in fitting if one in answering] or fitting  # a repository may hold the lesson, too
    chosen = max(fitting, key=lambda one: (one.rank, one.entry.parts))
    others = [one for one in notebooks if one is not chosen]
    said = [
        f"{one.entry.label} (lesson {lessons[one]})" if lessons[one] else one.entry.label for one in others
    ]
    more = f" and {len(said) - 5} more" if len(said) > 5 else ""
    why = "the newest" if len(fitting) > 1 else f"the one of lesson {lesson}" if lesson else "the only one"
    note = f"{len(notebooks)} notebooks: {chosen.entry.label} counts ({why}), not {', '.join(said[:5])}{more}"
    return chosen, [note]


def _peek(entry: _Entry) -> tuple[str, bool]:
    """The lesson of a notebook, and whether it has cells for answers."""
    try:
        data = _bytes(entry.path, entry.member)
        return lesson_of(data, entry.name), has_answers(data)
    except Unreadable:
        return "", False


def guess_lesson(submissions: Sequence[Submission], *, most: int = 40) -> str:
    """The lesson that most of the notebooks (of up to `most`) belong to, "" where none says so."""
    step = max(1, len(submissions) // most)
    votes: Counter[str] = Counter()
    for submission in submissions[::step]:
        if not submission.problem:
            with suppress(Unreadable):
                votes[lesson_of(content(submission), submission.file)] += 1
    votes.pop("", None)
    return votes.most_common(1)[0][0] if votes else ""


# --- reading one --------------------------------------------------------------------------------------------


def content(submission: Submission) -> bytes:
    """The bytes of a submission.

    Raises:
        Unreadable: there is nothing to read, or too much.
    """
    if submission.problem:
        raise Unreadable(submission.problem)
    return _bytes(submission.path, submission.member)


def _bytes(path: Path, member: int) -> bytes:
    try:
        if member < 0:
            # Opened without following a link or waiting for a pipe that took the file's place.
            flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
            with open(os.open(path, flags | getattr(os, "O_BINARY", 0)), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise Unreadable("it is not a plain file")
                data = file.read(LARGEST + 1)
        else:
            archive = _archive(path)
            with archive.open(archive.infolist()[member]) as file:
                data = file.read(LARGEST + 1)  # what the zip says of its size may be a lie
    except OSError as error:
        raise Unreadable(f"it cannot be read: {error.strerror or error}") from None
    except (GradingError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise Unreadable(f"it cannot be read from the zip: {plain(str(error))}") from None
    except Exception as error:  # zlib.error, lzma.LZMAError: each way of packing has its own
        raise Unreadable(f"it cannot be unpacked: {plain(str(error))}") from None
    if len(data) > LARGEST:
        raise Unreadable(f"a notebook may have {LARGEST >> 20} MB, and this file has more")
    return data
