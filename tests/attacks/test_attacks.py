"""No attack earns more than it deserves, none stops another submission, none leaves anything behind."""

import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import pytest
from attacks import ATTACKS, FULL, Attack, World
from handed import packed, right, solutions

from course_utils import checks
from course_utils.checks import engine
from course_utils.grading import grade as grading
from course_utils.grading import run
from course_utils.grading.collect import collect, content
from course_utils.grading.grade import Exam, grade
from course_utils.grading.run import Zygote, answers
from course_utils.grading.sheets import Cell, Unreadable

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.skipif(os.name == "nt", reason="the attacks are written for POSIX")


@dataclass
class Grader:
    """A grader at work, and the world around it that is to stay as it is."""

    world: World
    exam: Exam
    zygote: Zygote
    server: socket.socket

    def points(self, data: bytes) -> tuple[dict[str, int], list[str]]:
        """The points of a file that is handed in, by exercise, and all that is said of it."""
        file = self.world.submissions / "al.ipynb"
        file.write_bytes(data)
        try:
            [submission] = [s for s in collect(self.world.submissions, "04") if s.file == file.name]
            try:
                data = content(submission)
            except Unreadable:
                data = None
            found = grade(submission, data, self.exam, self.zygote, cell_seconds=1)
        finally:
            file.unlink()
        return {item.id: item.points for item in found.items}, [
            *found.notes,
            *(i.outcome for i in found.items),
        ]

    def snapshot(self) -> dict[str, object]:
        """Everything that an attack could have changed: files, processes, visitors."""
        kept = [self.world.submissions, self.world.results, ROOT / "course_utils" / "models"]
        paths = [path for folder in kept for path in folder.rglob("*") if path.name != "__pycache__"]
        files = {path: path.stat().st_mtime_ns for path in paths if path.suffix != ".pyc"}
        return {
            "files": files,
            "in the course": sorted(name for name in os.listdir(ROOT) if not name.startswith(".")),
            "temporary": sorted(os.listdir(tempfile.gettempdir())),
            "shared memory": self.shared_memory(),
            "processes": {p.pid for p in psutil.Process().children(recursive=True)},
            "visitors": self.visited(),
        }

    @staticmethod
    def shared_memory() -> list[str]:
        """What the disk bomb would leave there; browsers and other tests have files of their own."""
        names = os.listdir("/dev/shm") if sys.platform == "linux" else []
        return sorted(filter(str.isdigit, names))

    def visited(self) -> bool:
        try:
            self.server.accept()[0].close()
        except BlockingIOError:
            return False
        return True


@pytest.fixture(scope="module")
def grader(tmp_path_factory) -> Iterator[Grader]:
    folder = tmp_path_factory.mktemp("class")
    submissions, results = folder / "submissions", folder / "results"
    submissions.mkdir()
    results.mkdir()
    temporary = folder / "temporary"  # of our own: tests beside this one have theirs
    temporary.mkdir()
    (submissions / "other.ipynb").write_bytes(packed(right()))
    (results / "grades.csv").write_text("student,points\nother,10\n")
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.MonkeyPatch.context() as patch:
        server.setblocking(False)
        patch.setattr(tempfile, "tempdir", str(temporary))
        patch.setenv("TMPDIR", str(temporary))
        patch.setattr(grading, "answers", partial(answers, question_seconds=1.0))
        patch.setattr(run, "GRACE", 1.0)
        world = World(submissions, results, ROOT, server.getsockname()[1], os.getpid())
        with Zygote(hidden=(submissions, results)) as zygote:
            yield Grader(world, Exam("04", seed=7, hidden=1), zygote, server)


def is_unharmed(grader: Grader) -> bool:
    """Does the next student's right answer earn its points?"""
    exercise = checks.find("04.5")
    cases = engine.draw(exercise, 5)
    given = answers(grader.zygote, [Cell(1, solutions()["04.5"])], {"04.5": [cases]})
    return engine.judge(exercise, cases, given.replies["04.5"][0]).points == exercise.points


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_earns_what_it_deserves_and_leaves_nothing(grader, attack: Attack):
    if attack.strong and not grader.zygote.isolation.strong:
        pytest.skip(f"needs strong isolation: {grader.zygote.isolation.words}")
    data = attack.file(grader.world)
    grader.visited()
    before = grader.snapshot()
    points, said = grader.points(data)
    assert points == attack.points, said
    assert is_unharmed(grader)
    assert grader.snapshot() == before


def test_without_an_attack_all_points_are_earned(grader):
    points, said = grader.points(packed(right()))
    assert points == FULL, said


def test_every_attack_has_a_name_of_its_own_and_deserves_what_can_be_had():
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) > 60
    for attack in ATTACKS:
        assert attack.points.keys() == FULL.keys()
        assert all(0 <= points <= FULL[id] for id, points in attack.points.items())
