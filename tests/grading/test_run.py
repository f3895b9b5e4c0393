"""Run submissions: right answers come back whole, and whatever a child does costs no more than it must."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from course_utils import checks
from course_utils.checks import engine
from course_utils.grading import jail, run
from course_utils.grading.jail import Isolation
from course_utils.grading.run import Answers, Zygote, ZygoteError, answers
from course_utils.grading.sheets import read
from course_utils.questions.limit import TimeUp, alarmed

ROOT = Path(__file__).parent.parent.parent
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="children are forked on Linux only")


@dataclass(frozen=True)
class Cell:
    number: int
    source: str


def cells(*sources: str) -> list[Cell]:
    return [Cell(number, textwrap.dedent(source)) for number, source in enumerate(sources, 1)]


@pytest.fixture(scope="module")
def zygote():
    with Zygote() as started:
        yield started


@pytest.fixture(scope="module")
def strong(zygote):
    if not zygote.isolation.strong:
        pytest.skip(f"this machine has no strong isolation: {zygote.isolation.words}")
    return zygote


def cases_of(*ids: str, seeds: Sequence[int] = (checks.SEED,)):
    return {id: [engine.draw(checks.find(id), seed) for seed in seeds] for id in ids}


def points(given: Answers, id: str, asked) -> list[int | None]:
    """The points for each seed; None where a reply is missing."""
    return [
        None
        if any(reply is None for part in replies for reply in part)
        else engine.judge(checks.find(id), cases, replies).points
        for cases, replies in zip(asked[id], given.replies[id], strict=True)
    ]


RATE = """
def alignment_error_rate(links, sure, possible):
    hits = total = 0
    for a, s, p in zip(links, sure, possible):
        hits += len(a & s) + len(a & (s | p))
        total += len(a) + len(s)
    return 1 - hits / total if total else 0.0
"""
SOFTMAX = """
import torch
def masked_softmax(scores, mask):
    hidden = ~mask[:, None]
    filled = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
    return torch.softmax(filled, -1).masked_fill(hidden, 0.0)
"""
BOTH = ("04.1", "04.5")


@pytest.mark.parametrize("lesson", [f"{number:02d}" for number in range(1, 9)])
def test_the_solutions_of_every_lesson_earn_all_points_through_the_wire(zygote, lesson):
    exercises = checks.exercises(lesson)
    [path] = (ROOT / "solutions").glob(f"{lesson}_*.ipynb")
    asked = cases_of(*(exercise.id for exercise in exercises), seeds=(checks.SEED, 99))
    given = answers(zygote, read(path.read_bytes(), exercises).cells, asked)
    assert given.notes == ()
    for exercise in exercises:
        assert given.outcome[exercise.id] == "answered"
        assert points(given, exercise.id, asked) == [exercise.points] * 2
        assert given.seconds[exercise.id] > 0


def test_a_stub_is_unanswered_and_what_is_not_defined_is_missing(zygote):
    asked = cases_of(*BOTH, seeds=(4, 5))
    given = answers(zygote, cells("def masked_softmax(scores, mask):\n    raise NotImplementedError"), asked)
    assert given.outcome == {"04.1": "answered", "04.5": "missing"}
    first, second = given.replies["04.1"]
    assert {reply.trouble.kind for part in first for reply in part} == {"unanswered"}
    assert {reply for part in second for reply in part} == {None}  # once is enough
    assert {reply for seed in given.replies["04.5"] for part in seed for reply in part} == {None}


KILLERS = {
    "os._exit": "import os; os._exit(0)",
    "SIGSEGV": "import ctypes; ctypes.string_at(0)",
    "closing its socket": "import os; os.closerange(3, 64)",
    "a forged frame": "import os, struct; os.write(3, struct.pack('<II', 2, 0) + b'{}')",
    "an oversized frame": "import os, struct; os.write(3, struct.pack('<II', 2**32 - 1, 2**32 - 1))",
    "a reply to something else": """
        import socket
        from course_utils.grading import wire
        wire.send(socket.socket(fileno=3), {"to": "0" * 16, "replies": []}, 1e9)
    """,
}


def within_function(source: str) -> str:
    body = textwrap.indent(textwrap.dedent(source).strip(), "    ")
    return f"def alignment_error_rate(links, sure, possible):\n{body}\n    return 0.0"


@pytest.mark.parametrize("killer", KILLERS.values(), ids=KILLERS)
def test_an_answer_that_kills_its_process_costs_itself_alone(zygote, killer):
    asked = cases_of("04.5", "04.1")
    given = answers(zygote, cells(within_function(killer), SOFTMAX), asked, question_seconds=5)
    assert given.outcome == {"04.5": "died", "04.1": "answered"}
    assert points(given, "04.1", asked) == [2]
    assert given.replies["04.5"][0][0][0] is None


HANGS = {
    "a loop": "while True: pass",
    "a loop that catches everything": """
        while True:
            try:
                while True: pass
            except BaseException: pass
    """,
    "a loop with signals blocked": """
        import signal
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True: pass
    """,
    "half a frame": "import os, time; os.write(3, b'\\x10\\0\\0\\0\\0\\0\\0\\0{'); time.sleep(1000)",
    "sleep": "import time; time.sleep(1000)",
}


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(run, "GRACE", 0.5)


@pytest.mark.parametrize("hang", HANGS.values(), ids=HANGS)
def test_an_answer_that_hangs_costs_itself_alone(zygote, impatient, hang):
    asked = cases_of("04.5", "04.1", seeds=(4, 5))
    given = answers(zygote, cells(within_function(hang), SOFTMAX), asked, question_seconds=0.5)
    assert given.outcome["04.5"] in ("stopped", "died")
    assert points(given, "04.1", asked) == [2, 2]
    assert {reply for part in given.replies["04.5"][1] for reply in part} == {None}  # not asked again


@pytest.mark.skipif(os.name == "nt", reason="Windows has no alarms")
def test_an_alarm_stops_a_function_and_leaves_no_trace():
    before = signal.getsignal(signal.SIGALRM), sys.gettrace()
    assert alarmed(5, lambda: "done") == "done"
    with pytest.raises(TimeUp):
        alarmed(0.05, lambda: time.sleep(100))
    assert (signal.getsignal(signal.SIGALRM), sys.gettrace()) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_parts_before_one_that_hangs_keep_their_points(zygote, impatient):
    """04.5 has a part of single sentences and a part of several."""
    answer = RATE.replace("    hits", "    while len(links) > 1: pass\n    hits", 1)
    asked = cases_of("04.5", seeds=(4, 5))
    given = answers(zygote, cells(answer), asked, question_seconds=0.5)
    assert given.outcome["04.5"] == "stopped"
    for replies in given.replies["04.5"]:
        assert all(reply.outputs for reply in replies[0])


def test_cells_that_raise_hang_or_kill_cost_themselves_alone(zygote, impatient):
    told = (
        "1 / 0",
        "while True: pass",
        "import os; os._exit(3)",
        "raise SystemExit('bye')",
        "raise KeyboardInterrupt",
        "def broken(:",
        RATE,
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nwhile True: pass",
        SOFTMAX,
    )
    asked = cases_of(*BOTH)
    given = answers(zygote, cells(*told), asked, cell_seconds=0.5)
    assert [points(given, id, asked) for id in BOTH] == [[2], [2]]
    said = dict(note.removeprefix("cell ").split(" ", 1) for note in given.notes)
    assert sorted(said) == ["1", "2", "3", "4", "5", "6", "8"]
    assert "ZeroDivisionError" in said["1"] and "stopped" in said["2"] and "ended" in said["3"]
    assert "SystemExit: bye" in said["4"] and "SyntaxError" in said["6"] and "stopped" in said["8"]


def test_what_a_cell_that_hangs_had_defined_before_counts(zygote):
    asked = cases_of("04.5")
    given = answers(zygote, cells(RATE + "\nwhile True: pass"), asked, cell_seconds=0.3)
    assert points(given, "04.5", asked) == [2]


def test_magics_shell_lines_and_hooks_do_nothing(zygote):
    told = (
        "%matplotlib inline\n!rm -rf x\nfiles = !ls\nassert files == []\n%pip install x\n?print",
        "%%bash\nexit 1",
        "%%time\n" + RATE.strip(),
        "ip = get_ipython()\nip.events.register('post_run_cell', 1)\nip.input_transformers_post.append(1)",
        "from IPython import get_ipython\nfrom IPython.display import display, HTML\n"
        "get_ipython().run_line_magic('load_ext', 'x')\ndisplay(HTML('x'))",
        "from course_utils.checks import check, summary\ncheck('04.1', None)\nsummary('04')",
        "assert __name__ == '__main__'",
    )
    asked = cases_of("04.5")
    given = answers(zygote, cells(*told), asked)
    assert given.notes == ()
    assert points(given, "04.5", asked) == [2]


def test_the_text_of_a_cell_is_known_to_the_trouble_in_it(zygote):
    asked = cases_of("04.5")
    given = answers(zygote, cells("x = 1", within_function("y = 2\nraise ValueError('no')")), asked)
    trouble = given.replies["04.5"][0][0][0].trouble
    assert (trouble.kind, trouble.line, trouble.source) == ("raised", 3, "raise ValueError('no')")
    assert trouble.message == "Your code raised ValueError: no"


def test_an_interrupt_of_an_answer_is_its_own_trouble(zygote):
    asked = cases_of("04.5", "04.1")
    given = answers(zygote, cells(within_function("raise KeyboardInterrupt"), SOFTMAX), asked)
    assert given.replies["04.5"][0][0][0].trouble.kind == "raised"
    assert points(given, "04.1", asked) == [2]


def test_a_reply_too_large_to_send_is_trouble_in_words(zygote):
    asked = cases_of("04.1", "04.5")
    huge = "import torch\ndef masked_softmax(scores, mask): return torch.zeros(3000, 3000)"
    given = answers(zygote, cells(huge, RATE), asked)
    assert given.outcome["04.1"] == "answered"
    assert "too large" in given.replies["04.1"][0][0][0].trouble.message
    assert points(given, "04.5", asked) == [2]


def test_visible_cases_of_all_exercises_come_before_any_hidden_one(zygote):
    """So that nothing of a hidden input can be in what an answer says of a visible one."""
    told = """
        calls = []
        def alignment_error_rate(links, sure, possible):
            calls.append("rate"); print(len(calls)); return 0.0
        def masked_softmax(scores, mask):
            calls.append("softmax"); print(len(calls)); return scores
    """
    asked = cases_of(*BOTH, seeds=(4, 5))
    given = answers(zygote, cells(told), asked)
    numbers = {
        id: [
            [int(reply.printed.split()[-1]) for part in seed for reply in part] for seed in given.replies[id]
        ]
        for id in BOTH
    }
    visible = max(number for id in BOTH for number in numbers[id][0])
    assert visible < min(number for id in BOTH for number in numbers[id][1])


def test_what_later_children_say_of_their_cells_is_not_told(zygote):
    """A child that has seen hidden inputs could leave them to the next, if it found a place for them."""
    told = """
        import os
        raise ValueError(f"told at {os.times().elapsed}")
    """
    killer = within_function("import os\nif len(links) > 2: os._exit(0)")
    asked = cases_of("04.5", "04.1", seeds=(4, 5))
    given = answers(zygote, cells(told, killer, SOFTMAX), asked)
    assert given.outcome["04.5"] == "died"
    assert len([note for note in given.notes if "told at" in note]) == 1


def test_random_numbers_are_the_same_in_every_run(zygote):
    told = within_function(
        "import random, numpy, torch\nprint(random.random(), numpy.random.rand(), torch.rand(1))"
    )
    asked = cases_of("04.5")
    said = [
        [reply.printed for part in answers(zygote, cells(told), asked).replies["04.5"][0] for reply in part]
        for _ in range(2)
    ]
    assert said[0] == said[1] and len(set(said[0])) == len(said[0])


def test_a_submission_has_so_many_lives_and_so_much_time(zygote, monkeypatch):
    monkeypatch.setattr(run, "LIVES", 3)
    asked = cases_of(*BOTH)
    given = answers(zygote, cells(*["import os; os._exit(0)"] * 5, RATE), asked)
    assert set(given.outcome.values()) == {"died"}
    assert "given up after 3 processes" in given.notes[-1]
    late = answers(zygote, cells("import time; time.sleep(5)", RATE), asked, submission_seconds=0.5)
    assert set(late.outcome.values()) == {"stopped"}
    assert "took too long" in late.notes[-1]


def test_no_reference_and_no_judge_is_in_the_child(strong):
    told = within_function("""
        import gc, sys
        secret = ("course_utils.checks.", "course_utils.authoring")
        loaded = [name for name in sys.modules if name.startswith(secret)]
        assert not loaded, loaded
        references = [o for o in gc.get_objects() if type(o).__name__ in ("Exercise", "Key", "Mistake")]
        assert not references, references
        try:
            import course_utils.checks.engine
        except ImportError:
            print("not there")
    """)
    asked = cases_of("04.5")
    given = answers(strong, cells(told), asked)
    assert given.replies["04.5"][0][0][0].printed == "not there\n"


def test_the_child_holds_no_descriptor_but_its_own_and_starts_as_one_thread(strong):
    told = within_function("""
        import os, threading
        held = []
        for number in range(256):
            try: os.fstat(number)
            except OSError: continue
            held.append(number)
        print(held, threading.active_count())
    """)
    given = answers(strong, cells(told), cases_of("04.5"))
    assert given.replies["04.5"][0][0][0].printed == "[0, 1, 2, 3] 1\n"


@ON_LINUX
def test_the_preloaded_process_has_one_thread(zygote):
    """A fork copies one thread, and whatever locks the others held."""
    [inner] = psutil.Process(zygote.process.pid).children() or [psutil.Process(zygote.process.pid)]
    assert inner.num_threads() == 1


def test_a_child_finds_nothing_of_the_one_before(strong):
    leave = """
        import os
        for folder in (os.getcwd(), os.environ["TMPDIR"], "/dev/shm"):
            open(f"{folder}/left", "w").write("hello")
    """
    look = """
        import os
        left = [os.listdir(folder) for folder in (os.getcwd(), os.environ["TMPDIR"], "/dev/shm")]
    """
    found = within_function("print(left)")
    assert answers(strong, cells(leave), cases_of("04.5")).notes == ()
    given = answers(strong, cells(look, found), cases_of("04.5"))
    assert given.replies["04.5"][0][0][0].printed == "[[], [], []]\n"


def ours() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def test_nothing_that_a_submission_started_outlives_it(strong):
    before = {process.pid for process in ours()}
    told = """
        import os, subprocess, sys, threading, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                while True: time.sleep(1)
            os._exit(0)
        subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
        threading.Thread(target=time.sleep, args=(1000,)).start()
    """
    asked = cases_of("04.5")
    given = answers(strong, cells(told, RATE), asked)
    assert given.notes == () and points(given, "04.5", asked) == [2]
    assert {process.pid for process in ours()} == before


@ON_LINUX
def test_a_lost_zygote_is_started_again(zygote):
    asked = cases_of("04.5")
    process = zygote.process
    for inner in psutil.Process(process.pid).children() or [process]:
        inner.kill()
    assert points(answers(zygote, cells(RATE), asked), "04.5", asked) == [2]
    assert process.poll() is not None and zygote.process is not process


@ON_LINUX
def test_a_zygote_that_cannot_start_says_why_and_leaves_nothing(monkeypatch):
    monkeypatch.setattr(run, "FLAGS", ("-c", "raise SystemExit('broken here')"))
    before = {process.pid for process in ours()}
    with pytest.raises(ZygoteError, match="broken here"), Zygote(Isolation()):
        pass
    assert {process.pid for process in ours()} == before


GRADER = """
import collections, sys
sys.path.insert(0, sys.argv[1])
from course_utils.grading.run import Zygote, answers
cell = collections.namedtuple("Cell", "number source")
from course_utils.grading.jail import Isolation, probe
with Zygote(probe() if sys.argv[2] == "jail" else Isolation()) as zygote:
    print(zygote.process.pid, flush=True)
    hang = "import os, time\\nif not os.fork(): os.setsid()\\nwhile True: time.sleep(1)"
    answers(zygote, [cell(1, hang)], {"04.5": [[[{}]]]}, cell_seconds=1000)
"""


@ON_LINUX
@pytest.mark.parametrize("isolation", ["jail", "none"])
def test_when_the_grader_is_killed_all_its_processes_end_and_no_file_is_left(isolation, tmp_path):
    command = [sys.executable, "-c", GRADER, str(ROOT), isolation]
    own = os.environ | {"TMPDIR": str(tmp_path)}
    grader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=own)
    try:
        zygote = psutil.Process(int(grader.stdout.readline()))
        # The cell runs once its child is there, and the child's child.
        levels = 3 if isolation == "jail" and "namespaces" in jail.probe().means else 2
        wait_for(lambda: len(zygote.children(recursive=True)) >= levels)
        family = [zygote, *zygote.children(recursive=True)]
    finally:
        grader.kill()
        grader.wait()
        grader.stdout.close()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive
    assert os.listdir(tmp_path) == []


def wait_for(condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


@pytest.mark.skipif(os.name == "nt", reason="process groups are POSIX's")
def test_where_nothing_can_be_forked_each_child_is_a_process_of_its_own(monkeypatch):
    asked = cases_of("04.5")
    left = "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'while True: pass'])"
    with Zygote(Isolation(), fork=False) as zygote:
        given = answers(zygote, cells(left, RATE, "open('left', 'w').write('x')"), asked)
        assert given.notes == () and points(given, "04.5", asked) == [2]
        assert zygote.process is None and not zygote.place
    assert not [process for process in ours() if "while True" in " ".join(process.cmdline())]


def test_scratch_that_is_closed_to_its_owner_is_removed(tmp_path):
    deep = tmp_path / "scratch" / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    (tmp_path / "kept").mkdir()
    (tmp_path / "scratch" / "link").symlink_to(tmp_path / "kept")
    deep.chmod(0)
    deep.parent.chmod(0)
    jail.remove(str(tmp_path / "scratch"))
    assert os.listdir(tmp_path) == ["kept"]


def test_interrupting_the_grader_ends_the_child(zygote):
    """Ctrl-C comes while a submission runs."""

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    try:
        with pytest.raises(KeyboardInterrupt):
            answers(zygote, cells("while True: pass"), cases_of("04.5"), cell_seconds=100)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)  # should it not have come, nothing is to end the tests later
        signal.signal(signal.SIGALRM, before)
    asked = cases_of("04.5")
    assert points(answers(zygote, cells(RATE), asked), "04.5", asked) == [2]
