"""Many submissions, drawn from right answers, variants, named mistakes, attacks and corruptions, and killed
in mid-run: after it has gone on, every grade is the deserved one.

    COURSE_SUBMISSIONS=1000 pytest tests/grading/test_thousand.py
"""

import copy
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil
import pytest
from handed import Notebook, alone, answer_cells, answered, as_cell, exercises, packed, right, with_cell

from course_utils import checks
from course_utils.checks.engine import judge
from course_utils.grading.grade import Exam
from course_utils.questions.asking import ask

sys.path.insert(0, str(Path(__file__).parent.parent / "attacks"))
from attacks import ATTACKS, Attack, World

COUNT = int(os.environ.get("COURSE_SUBMISSIONS", "40"))
SEED = 77
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the attacks need isolation as Linux has it")

Part = tuple[int, str]  # points, and the named mistake that is said
Deserved = dict[str, list[Part]]


@dataclass(frozen=True)
class Handed:
    """A file that a student hands in (None: none at all), and the points that it deserves."""

    kind: str
    name: str
    data: bytes | None
    points: dict[str, int]
    parts: Deserved | None = None  # where each part's points are known, and the mistakes in them


# --- what an answer deserves --------------------------------------------------------------------------------


@cache
def exam() -> Exam:
    return Exam("04", SEED)


@cache
def deserved(id: str, kind: str, name: str) -> list[Part]:
    """The parts of an answer of the checks, judged in this process, with no notebook about it."""
    exercise = checks.find(id)
    offered = exercise.mistakes if kind == "Mistake" else exercise.variants
    answer = next(one for one in offered if one.name == name).answer
    verdicts = [
        judge(exercise, key.cases, ask(exercise.question, answer, key.cases), key) for key in exam().keys[id]
    ]
    parts = []
    for place, visible in enumerate(verdicts[0].parts):
        points = min(verdict.parts[place].points for verdict in verdicts)
        parts.append((points, visible.finding.mistake if visible.finding else ""))
    return parts


@cache
def offers(id: str) -> list[tuple[str, str]]:
    """The variants and mistakes of an exercise that can be written into a cell."""
    exercise, found = checks.find(id), []
    for kind, all_of_them in (("Variant", exercise.variants), ("Mistake", exercise.mistakes)):
        for one in all_of_them:
            try:
                as_cell(id, kind, one.name)
            except LookupError:
                continue
            found.append((kind, one.name))
    return found


def an_answer(id: str, chance: random.Random) -> tuple[str, list[Part]]:
    """A cell that answers, and what its parts deserve."""
    exercise = checks.find(id)
    if chance.random() < 0.4:
        return alone(id), [(part.points, "") for part in exercise.parts]
    kind, name = chance.choice(offers(id))
    return as_cell(id, kind, name), deserved(id, kind, name)


def a_notebook(chance: random.Random) -> tuple[Notebook, Deserved]:
    answers, parts = {}, {}
    for exercise in exam().exercises:
        if chance.random() < 0.1:
            parts[exercise.id] = [(0, "") for _ in exercise.parts]  # the stub
        else:
            answers[exercise.id], parts[exercise.id] = an_answer(exercise.id, chance)
    return answered(answers), parts


# --- what becomes of a notebook on its way ------------------------------------------------------------------


def lost(parts: Deserved, *ids: str) -> Deserved:
    return parts | {id: [(0, "") for _ in parts[id]] for id in ids}


def everything_lost(data: bytes | None) -> Callable:
    return lambda notebook, parts, chance: (data, lost(parts, *parts))


def in_front(source: str) -> Callable:
    return lambda notebook, parts, chance: (packed(with_cell(notebook, source)), parts)


def written(encoding: str) -> Callable:
    return lambda notebook, parts, chance: (
        json.dumps(with_cell(notebook, "# Zoë"), ensure_ascii=False).encode(encoding, "replace"),
        parts,
    )


def stripped(notebook: Notebook, parts: Deserved, chance: random.Random):
    for cell in notebook["cells"]:
        cell["metadata"] = {}
        cell.pop("id", None)
    return packed(notebook), parts


def format_3(notebook: Notebook, parts: Deserved, chance: random.Random):
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["input"] = cell.pop("source")
    return packed({"worksheets": [{"cells": notebook["cells"]}], "metadata": {}, "nbformat": 3}), parts


def removed(notebook: Notebook, parts: Deserved, chance: random.Random):
    id = chance.choice(list(parts))
    notebook["cells"].remove(answer_cells(notebook)[id])
    return packed(notebook), lost(parts, id)


def made_text(notebook: Notebook, parts: Deserved, chance: random.Random):
    id = chance.choice(list(parts))
    answer_cells(notebook)[id]["cell_type"] = "markdown"
    return packed(notebook), lost(parts, id)


def renamed(notebook: Notebook, parts: Deserved, chance: random.Random):
    id = chance.choice(list(parts))
    name = checks.find(id).function
    answer_cells(notebook)[id]["source"] = alone(id).replace(name, f"my_{name}")
    return packed(notebook), parts | {id: [(part.points, "") for part in checks.find(id).parts]}


def stubs_behind(notebook: Notebook, parts: Deserved, chance: random.Random):
    notebook["cells"] += copy.deepcopy(exercises()["cells"])
    return packed(notebook), parts


def doubled(notebook: Notebook, parts: Deserved, chance: random.Random):
    notebook["cells"] += copy.deepcopy(notebook["cells"])
    return packed(notebook), parts


def cut_off(notebook: Notebook, parts: Deserved, chance: random.Random):
    return packed(notebook)[: -chance.randrange(2, 3000)], lost(parts, *parts)


def shuffled(notebook: Notebook, parts: Deserved, chance: random.Random):
    first, rest = notebook["cells"][:3], notebook["cells"][3:]
    chance.shuffle(rest)
    return packed(notebook | {"cells": first + rest}), parts


CORRUPTIONS = {
    "an empty file": everything_lost(b""),
    "half a file": cut_off,
    "no file": everything_lost(None),
    "another lesson": everything_lost(packed(right("03"))),
    "a list": everything_lost(b"[1, 2]"),
    "UTF-16": written("utf-16"),
    "Latin-1": written("latin-1"),
    "a BOM": written("utf-8-sig"),
    "metadata stripped": stripped,
    "format 3": format_3,
    "an answer removed": removed,
    "an answer made text": made_text,
    "a function renamed": renamed,
    "stubs behind": stubs_behind,
    "every cell twice": doubled,
    "cells shuffled": shuffled,
    "a cell that raises": in_front("1 / 0"),
    "a cell that is no Python": in_front("def f(:\n  x y"),
    "a cell that exits": in_front("import sys; sys.exit()"),
    "a cell of magics": in_front("%matplotlib inline\n!pip list\n%%bash\necho"),
    "a cell that prints a lot": in_front("for n in range(10_000): print('x' * 100)"),
}  # fmt: skip
SLOW = ("endless", "flood", "silence", "bomb", "200 MB")
NAMES = ("", "=1+1", "<b>", " é", "'); --", "~", "%s", "-rf")


def hand_in(number: int, world: World) -> Handed:
    chance = random.Random(f"{SEED} {number}")
    name = f"{number:04}{chance.choice(NAMES)}"
    if chance.random() < 0.15:
        quick = [
            attack for attack in ATTACKS if not attack.name.startswith(SLOW) and "200 MB" not in attack.name
        ]
        attack: Attack = chance.choice(quick if chance.random() < 0.9 else ATTACKS[:-1])
        if "200 MB" not in attack.name:
            return Handed(attack.name, name, attack.file(world), attack.points)
    notebook, parts = a_notebook(chance)
    kind, data = "as it should be", packed(notebook)
    if chance.random() < 0.35:
        kind = chance.choice(list(CORRUPTIONS))
        data, parts = CORRUPTIONS[kind](notebook, parts, chance)
    return Handed(kind, name, data, {id: sum(points for points, _ in of) for id, of in parts.items()}, parts)


# --- the run ------------------------------------------------------------------------------------------------


def grade(folder: Path, out: Path, scratch: Path) -> subprocess.Popen:
    call = [sys.executable, "-c", "from course_utils.cli import app; app()", "grade", folder, "--out", out]
    options = ["--lesson", "04", "--seed", str(SEED), "--timeout", "2", "--require-isolation"]
    return subprocess.Popen(
        [*map(str, call), *options],
        env=os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        text=True,
    )


def kept(out: Path) -> int:
    return len(list((out / "state").glob("[!r]*.json")))


@pytest.fixture
def scratch():
    """A short path, for the sockets in it; what a killed process leaves there goes with it."""
    with tempfile.TemporaryDirectory(prefix="k-") as folder:
        yield Path(folder)


def test_every_grade_is_the_deserved_one_also_after_a_kill(tmp_path, scratch):
    folder, out = tmp_path / "class", tmp_path / "results"
    world = World(folder, out, Path(__file__).parents[2], 9, os.getpid())
    handed = {}
    for number in range(COUNT):
        one = hand_in(number, world)
        handed[one.name] = one
        (folder / one.name).mkdir(parents=True)
        if one.data is not None:
            (folder / one.name / "04 my answers.ipynb").write_bytes(one.data)

    process = grade(folder, out, scratch)
    try:
        while process.poll() is None and kept(out) < COUNT // 3:
            time.sleep(0.1)
        assert process.poll() is None
        all_of_it = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        _, alive = psutil.wait_procs(all_of_it, timeout=120)
        assert len(all_of_it) >= 4 and not alive  # the processes that grade, and a zygote each
        done = kept(out)
        assert done < COUNT

        process = grade(folder, out, scratch)
        said, _ = process.communicate()
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
    print(said)
    assert "of them kept from before" in said

    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    grades = {grade["student"]: grade for grade in results["grades"]}
    assert grades.keys() == handed.keys()
    wrong = []
    for name, one in handed.items():
        items = {item["id"]: item for item in grades[name]["items"]}
        if {id: item["points"] for id, item in items.items()} != one.points:
            got = {id: item["points"] for id, item in items.items()}
            wrong.append(f"{name} ({one.kind}): {got} instead of {one.points}; {grades[name]['notes']}")
        elif one.parts is not None:
            for id, parts in one.parts.items():
                found = [
                    (p["points"], p["finding"]["mistake"] if p["finding"] else "") for p in items[id]["parts"]
                ]
                if [points for points, _ in found] != [points for points, _ in parts]:
                    wrong.append(f"{name} ({one.kind}) {id}: {found} instead of {parts}")
                named = [(a, b) for (_, a), (_, b) in zip(found, parts, strict=True) if b and a != b]
                if named:
                    wrong.append(f"{name} ({one.kind}) {id}: called {named}")
    assert not wrong, "\n".join([f"{len(wrong)} of {COUNT}", *wrong[:40]])
