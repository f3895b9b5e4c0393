"""Rules that every text and every built notebook keeps; each finding says where and what to do."""

import re
from collections.abc import Iterator

from nbformat import NotebookNode

from course_utils.authoring.notebooks import Text, dumps, exercises_of, place, tagged

CELL_LINES = 22
NOTEBOOK_BYTES = 1_500_000
TAGS = {"setup", "summary", "raises-exception", "nbval-check-output", "nbval-ignore-output", "nbval-skip"}

_MACHINE_PATH = re.compile(r"(?<![\w.~/:])(?:/(?:home|root|Users|tmp|work|usr|opt|mnt|var)/\w|[A-Z]:\\\w)")
_OUTSIDE = re.compile(
    r"""<(?:script|img|link|iframe|video|audio|source)\b[^>]*?\b(?:src|href)\s*=\s*["']?\s*(?:https?:)?//"""
    r"""|url\(\s*["']?(?:https?:)?//|@import\s+["']?(?:https?:)?//""",
    re.IGNORECASE,
)
_IMAGE = re.compile(r"<img\b[^>]*>", re.IGNORECASE)
_ALT = re.compile(r"""\balt\s*=\s*(?:"[^"]*[^"\s][^"]*"|'[^']*[^'\s][^']*')""", re.IGNORECASE)
_MARKDOWN_IMAGE = re.compile(r"!\[([^\]]*)\]\(\s*<?([^)\s>]*)")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def lint(notebook: NotebookNode, text: Text) -> list[str]:
    """What breaks the rules in a composed notebook, and in the outputs where it was executed."""
    name = text.built.relative_to(text.root).as_posix()
    found = [*_headings(notebook), *_exercises(notebook, text)]
    for index, cell in enumerate(notebook.cells):
        found += [f"{place(notebook, index)} {finding}" for finding in (*_source(cell), *_stored(cell, text))]
    size = len(dumps(notebook).encode())
    if size > NOTEBOOK_BYTES:
        found.append(f"has {size:,} bytes, more than {NOTEBOOK_BYTES:,}: store fewer or smaller figures")
    return [f"{name}: {finding}." for finding in found]


def _source(cell: NotebookNode) -> Iterator[str]:
    lines = len(cell.source.splitlines())
    if cell.cell_type == "code" and lines > CELL_LINES:
        yield f"has {lines} lines of code, more than {CELL_LINES}: split it"
    if _MACHINE_PATH.search(cell.source):
        yield f"names a path of a machine: {_MACHINE_PATH.search(cell.source)[0]}"
    tags = cell.metadata.get("tags", [])
    for tag in tags:
        if tag not in TAGS and not re.fullmatch(r"(exercise|check):\d\d\.\d+", tag):
            known = ", ".join(["exercise:NN.N", "check:NN.N", *sorted(TAGS)])
            yield f"has the unknown tag {tag!r}; known are {known}"
    if cell.cell_type != "code" and tags:
        yield "has tags, which only code cells carry"
    judges = "summary" in tags or any(tag.startswith("check:") for tag in tags)
    if judges and "nbval-check-output" not in tags:
        yield "judges, and needs the tag nbval-check-output too"
    if cell.cell_type == "markdown":
        yield from _pictures(cell.source)


def _stored(cell: NotebookNode, text: Text) -> Iterator[str]:
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        for content in (
            output.get("text", ""),
            *(value for value in data.values() if isinstance(value, str)),
        ):
            if _MACHINE_PATH.search(content):
                yield f"has an output that names a path of a machine: {_MACHINE_PATH.search(content)[0]}"
        for kind in ("text/html", "text/markdown", "image/svg+xml"):
            yield from _pictures(data.get(kind, ""))
        if "text/html" not in data and any(kind.startswith("image/") for kind in data):
            yield "stores a bare image: show it through course_utils.figures.show, with alt text"
        claim = output.get("metadata", {}).get("claim")
        if claim and not claim["holds"]:
            measured = f"{claim['sentence']} (measured: {claim['measured']})"
            yield f"claims {claim['id']}, which does not hold: {measured}"
        if claim and claim["lesson"] != text.lesson:
            yield f"claims {claim['id']}, which belongs to lesson {claim['lesson']}"


def _pictures(content: str) -> Iterator[str]:
    if any(not _ALT.search(tag) for tag in _IMAGE.findall(content)):
        yield "has an image without alt text: say what is seen"
    for alt, source in _MARKDOWN_IMAGE.findall(content):
        if not alt.strip():
            yield "has an image without alt text: say what is seen"
        if re.match(r"(https?:)?//", source):
            yield f"shows an image from outside: {source}"
    if _OUTSIDE.search(content):
        yield f"loads something from outside: {_OUTSIDE.search(content)[0]}"


def _headings(notebook: NotebookNode) -> Iterator[str]:
    texts = (_FENCE.sub("", cell.source) for cell in notebook.cells if cell.cell_type == "markdown")
    found = [match for text in texts for match in re.findall(r"^(#{1,6})\s+(.*)$", text, re.MULTILINE)]
    levels = [len(marks) for marks, _ in found]
    if levels[:1] != [1] or levels.count(1) != 1:
        yield "one heading of level 1 opens the notebook, and no other stands in it"
    for before, after, (_, title) in zip(levels, levels[1:], found[1:], strict=False):
        if after > before + 1:
            yield f"the heading {title!r} jumps from level {before} to {after}"


def _exercises(notebook: NotebookNode, text: Text) -> Iterator[str]:
    answers = tagged(notebook, "exercise:")
    if not text.exercise:
        if answers:
            yield f"exercises ({', '.join(answers)}) belong under solutions/"
        return
    known = exercises_of(text.lesson)
    if list(answers) != sorted(known):
        yield f"has the exercises {list(answers)}, the registry of checks has {sorted(known)}"
    for id in answers.keys() & known.keys():
        function = known[id].function
        if not re.search(rf"^(def|class) {function}\b", answers[id].source, re.MULTILINE):
            yield f"the answer to {id} has to define {function}"
    for id, cell in tagged(notebook, "check:").items():
        printed = "".join(output.get("text", "") for output in cell.outputs)
        if cell.outputs and id in known and f"{known[id].points} of {known[id].points} points" not in printed:
            yield f"the solution of {id} does not earn its {known[id].points} points"
