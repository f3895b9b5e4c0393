"""Seconds a submission of lesson 04, graded by this course, nbgrader 0.9.6 and otter-grader 7.0.0.

    python tests/benchmarks/grading_speed.py [--rounds 3] [--class-size 300] [--workers 2] [--venvs FOLDER]

Run it from an environment in which the course is installed; it makes a throw-away environment for each of the
other two (with a network, or packages on the disk), which borrows what is installed here. All grade the same
three submissions: all right; two exercises wrong and one not answered; all wrong. The systems take turns, so
that a busy machine slows all of them; the figures are medians over submissions and rounds, and the ratios
compare within one run. Each system's start is left out: all run as a library, in a process that has already
graded once. The other two judge the cases of the notebook; this course judges those
and as many hidden ones, in further rows three hidden sets, and the same as the others. Then `course grade`
runs as a whole, on 50 and on --class-size submissions, all different: seconds, and the largest memory of all
its processes together (shared pages counted once where that can be read).
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from functools import partial
from pathlib import Path

from course_utils.grading import HIDDEN

ROOT = Path(__file__).parents[2]
LESSON, NAME = "04", "04_bahdanau_attention.ipynb"
PINS = {"nbgrader": "0.9.6", "otter-grader": "7.0.0"}
KINDS = ("right", "partly right", "wrong")
WRONG = """

_right_{name} = {name}


def {name}(*given):
    result = _right_{name}(*given)
    return tuple(1.01 * part for part in result) if isinstance(result, tuple) else 1.01 * result
"""
# For otter, one test a part; the exercise is asked once for all of them.
POINTS = """\
from functools import cache

from course_utils import checks


@cache
def verdict(id, answer):
    return checks.verdict(checks.find(id), answer)
"""


# --- the submissions ----------------------------------------------------------------------------------------


def notebook(kind: str, number: int = 0) -> dict:
    """A student's notebook; `number` makes its bytes different from any other's."""
    read = json.loads((ROOT / "solutions" / NAME).read_text(encoding="utf-8"))
    for cell in read["cells"]:
        mark = cell["metadata"].get("course", {})
        if mark.get("role") != "answer":
            continue
        source = "".join(cell["source"])
        if kind == "partly right" and mark["exercise"] == "04.2":
            source = source.replace("torch.tanh(", "(")
        if kind == "partly right" and mark["exercise"] == "04.5":
            source = source.partition("### BEGIN")[0] + 'raise NotImplementedError("04.5")\n'
        if kind == "wrong":
            source += WRONG.format(name=source.partition("def ")[2].partition("(")[0])
        cell["source"] = f"# submission {number}\n{source}"
    return read


def submissions(folder: Path, count: int) -> Path:
    """A folder of that many notebooks, all different, the kinds taking turns."""
    folder.mkdir(parents=True)
    for number in range(count):
        content = json.dumps(notebook(KINDS[number % len(KINDS)], number))
        (folder / f"student{number:03}.ipynb").write_text(content, encoding="utf-8")
    return folder


# --- one system each, in a process of its own ---------------------------------------------------------------


def ours(folder: Path, hidden: int = HIDDEN) -> None:
    from course_utils.grading.collect import collect, content
    from course_utils.grading.grade import Exam, grade
    from course_utils.grading.run import Zygote

    exam = Exam(LESSON, seed=1, hidden=hidden)
    found = collect(folder / "kinds", LESSON)
    with Zygote() as zygote:

        def run(index: int) -> int:
            return grade(found[index], content(found[index]), exam, zygote).points

        _serve(run)


def nbgrader(folder: Path) -> None:
    from nbgrader.apps import NbGraderAPI
    from traitlets.config import Config

    course = folder / "nbgrader"
    api = NbGraderAPI(config=Config({"CourseDirectory": {"root": str(course)}}))
    source = course / "source" / "ps" / NAME
    source.parent.mkdir(parents=True)
    source.write_text(json.dumps(notebook("right")), encoding="utf-8")
    told = api.generate_assignment("ps")
    assert told["success"], told["error"] or told["log"]
    for index, path in enumerate(sorted((folder / "kinds").iterdir())):
        place = course / "submitted" / f"s{index}" / "ps" / NAME
        place.parent.mkdir(parents=True)
        place.write_bytes(path.read_bytes())

    def run(index: int) -> int:
        told = api.autograde("ps", f"s{index}", force=True)
        assert told["success"], told["error"] or told["log"]
        with api.gradebook as book:
            return int(book.find_submission("ps", f"s{index}").score)

    _serve(run)


def otter(folder: Path) -> None:
    import otter.generate
    from otter.api import grade_submission

    from course_utils import checks

    place = folder / "otter"
    (place / "tests").mkdir(parents=True)
    for exercise in checks.exercises(LESSON):
        name = exercise.id.replace(".", "_")
        use = ">>> from points_of_course import verdict"
        ask = f'verdict("{exercise.id}", {exercise.function})'
        cases = [
            {
                "code": f"{use}\n>>> {ask}.parts[{number}].points\n{part.points}",
                "points": part.points,
                "hidden": False,
                "locked": False,
            }
            for number, part in enumerate(exercise.parts)
        ]
        suite = {"cases": cases, "scored": True, "setup": "", "teardown": "", "type": "doctest"}
        test = {"name": name, "points": None, "suites": [suite]}
        (place / "tests" / f"{name}.py").write_text(f"OK_FORMAT = True\ntest = {test!r}\n")
    archive = str(place / "autograder.zip")
    otter.generate.main(
        tests_dir=str(place / "tests"), output_path=archive, no_requirements=True, no_environment=True
    )
    paths = sorted((folder / "kinds").iterdir())

    def run(index: int) -> int:
        return int(grade_submission(str(paths[index]), archive, quiet=True).total)

    _serve(run)


SYSTEMS = {
    "this course": ours,
    "this course, --hidden 3": partial(ours, hidden=3),
    "this course, the same cases as the others": partial(ours, hidden=0),
    "nbgrader": nbgrader,
    "otter-grader": otter,
}


def _serve(run) -> None:
    """Grade the submission that stands on each line of the input, and say how long it took."""
    run(0)
    say = os.fdopen(int(os.environ["BENCHMARK_SAYS"]), "w", buffering=1)
    print("ready", file=say)
    for line in sys.stdin:
        begun = time.perf_counter()
        points = run(int(line))
        print(json.dumps([time.perf_counter() - begun, points]), file=say)


class System:
    """A process that grades with one system when it is asked to."""

    def __init__(self, name: str, python: Path | str, folder: Path):
        reader, writer = os.pipe()
        environment = os.environ | {"BENCHMARK_SAYS": str(writer), "PYTHONPATH": str(folder / "modules")}
        environment |= {"OMP_NUM_THREADS": "1", "COURSE_QUIET": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
        environment |= {
            "IPYTHONDIR": str(folder / "ipython"),
            "PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}",
        }
        log = (folder / f"{name}.log").open("w")
        self.name, self.log = name, folder / f"{name}.log"
        self.process = subprocess.Popen(
            [str(python), __file__, "--serve", name, str(folder)],
            cwd=folder, env=environment, pass_fds=[writer], stdin=subprocess.PIPE, stdout=log, stderr=log,
        )  # fmt: skip
        os.close(writer)
        self.said = os.fdopen(reader)
        self._line()

    def grade(self, index: int) -> tuple[float, int]:
        self.process.stdin.write(f"{index}\n".encode())
        self.process.stdin.flush()
        seconds, points = json.loads(self._line())
        return seconds, points

    def _line(self) -> str:
        line = self.said.readline()
        if not line:
            sys.exit(f"{self.name} ended:\n{self.log.read_text()[-3000:]}")
        return line

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.said.close()


def environment(name: str, folder: Path) -> Path:
    """The Python of a virtual environment with that package and all that is installed here."""
    place = folder / name
    python = place / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        variables = {"base": str(place), "platbase": str(place)}
        packages = Path(sysconfig.get_path("purelib", "venv", vars=variables))
        (packages / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT}\n")
        install = [str(python), "-m", "pip", "install", "--quiet", f"{name}=={PINS[name]}"]
        subprocess.run(install, check=True)
    return python


def compare(rounds: int, systems: list[str], folder: Path, venvs: Path) -> None:
    submissions(folder / "kinds", len(KINDS))
    (folder / "modules").mkdir()
    (folder / "modules" / "points_of_course.py").write_text(POINTS)
    running = []
    for name in systems:
        print(f"starting {name} ...", file=sys.stderr, flush=True)
        python = sys.executable if name not in PINS else environment(name, venvs)
        running.append(System(name, python, folder))
    taken = {name: [] for name in systems}
    points: dict[str, list[int]] = {}
    for number in range(rounds):
        for system in running:
            results = [system.grade(index) for index in range(len(KINDS))]
            taken[system.name] += [seconds for seconds, _ in results]
            points[system.name] = [earned for _, earned in results]
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    for system in running:
        system.end()
    base = statistics.median(taken[systems[0]])
    print(f"| system | seconds a submission (median of {rounds * len(KINDS)}) | of {systems[0]} | points |")
    print("|---|---:|---:|---|")
    for name, seconds in taken.items():
        median = statistics.median(seconds)
        print(f"| {name} | {median:.3f} | {median / base:.1f} | {', '.join(map(str, points[name]))} |")
    print(f"\nPoints of: {', '.join(KINDS)}.\n")


# --- a class as a whole -------------------------------------------------------------------------------------


def family(root: int) -> list[int]:
    """The process `root` and all that descend from it."""
    parents: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                parent = int(Path(entry.path, "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found


def memory(pid: int) -> float:
    """MiB of a process: its share of shared pages where the system tells, else all of them."""
    try:
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(row.split()[1]) for row in rows if row.startswith("Pss:")) / 2**10
    except (OSError, StopIteration):
        try:
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
        except OSError:
            return 0.0


def grade_class(count: int, workers: int, folder: Path) -> tuple[float, float, str]:
    """Seconds and peak MiB of `course grade` on that many submissions, and its last line."""
    handed_in = submissions(folder / f"class{count}", count)
    command = [sys.executable, "-c", "from course_utils.cli import app; app()", "grade", str(handed_in)]
    command += ["--out", str(folder / f"results{count}"), "--lesson", LESSON, "--workers", str(workers)]
    command += ["--seed", "1"]
    begun, peak = time.perf_counter(), 0.0
    with (folder / "class.log").open("w+") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        while process.returncode is None:
            with contextlib.suppress(subprocess.TimeoutExpired):  # a look costs time: not too often
                process.wait(timeout=2)
            if sys.platform == "linux":
                peak = max(peak, sum(map(memory, family(process.pid))))
        seconds = time.perf_counter() - begun
        log.seek(0)
        said = log.read().strip()
    if process.returncode:
        sys.exit(said)
    return seconds, peak, said.splitlines()[-1]


def classes(size: int, workers: int, folder: Path) -> None:
    print(f"`course grade`, {workers} workers:\n")
    print(
        "| submissions | seconds in all | seconds a submission | peak memory (MiB) |\n|---:|---:|---:|---:|"
    )
    for count in (50, size):
        seconds, peak, said = grade_class(count, workers, folder)
        print(f"| {count} | {seconds:.1f} | {seconds / count:.3f} | {peak:.0f} |", flush=True)
        print(said, file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--class-size", type=int, default=300)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--venvs", type=Path, help="where the other systems are installed, to be kept")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        name, folder = options.serve
        SYSTEMS[name](Path(folder))
        return
    with tempfile.TemporaryDirectory(prefix="grading-speed-") as scratch:
        folder = Path(scratch)
        if options.rounds:
            compare(options.rounds, options.systems, folder, options.venvs or folder / "venvs")
        if options.class_size:
            classes(options.class_size, options.workers, folder)


if __name__ == "__main__":
    main()
