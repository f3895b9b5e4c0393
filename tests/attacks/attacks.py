"""Submissions of lesson 04 that attack the grader or are broken, each with the points it deserves.

An attack is right answers with one thing changed: a cell put in front of them (`cell`), some answers replaced
(`answers`), or the notebook or its file changed as a whole (`made`). Where `deserved` names an exercise, the
attack deserves so many points there, and full points everywhere else. What an attack is after stands in
`world`: the folders of the class and of the results, and the course's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

from handed import Notebook, answer_cells, exercises, packed, right, solutions, with_cell

from course_utils import checks
from course_utils.checks import engine

FULL = {"04.1": 2, "04.2": 2, "04.3": 1, "04.4": 3, "04.5": 2}
NOTHING = dict.fromkeys(FULL, 0)


@dataclass(frozen=True)
class World:
    """Where things lie that are none of a student's business."""

    submissions: Path
    results: Path
    course: Path
    port: int  # a server listens there
    grader: int  # process id


@dataclass(frozen=True)
class Attack:
    name: str
    cell: str = ""
    answers: dict[str, str] = field(default_factory=dict)
    made: Callable[[], Notebook | bytes] = right
    deserved: dict[str, int] = field(default_factory=dict)
    strong: bool = False  # fails only where isolation is strong

    @property
    def points(self) -> dict[str, int]:
        return FULL | self.deserved

    def file(self, world: World) -> bytes:
        """The file that is handed in."""
        made = self.made()
        if isinstance(made, bytes):
            return made
        for id, source in self.answers.items():
            answer_cells(made)[id]["source"] = _filled(source, world)
        return packed(with_cell(made, _filled(self.cell, world)) if self.cell else made)


def _filled(source: str, world: World) -> str:
    for name, value in vars(world).items():
        source = source.replace(f"${name.upper()}", str(value))
    return dedent(source).strip()


# --- answers ------------------------------------------------------------------------------------------------


def rate(body: str) -> dict[str, str]:
    """An answer to 04.5 that runs `body`, and is wrong unless that returns."""
    head = "def alignment_error_rate(links, sure, possible):\n"
    return {"04.5": f"{head}{indent(dedent(body).strip(), '    ')}\n    return 0.123"}


def softmax(body: str) -> dict[str, str]:
    """An answer to 04.1 that runs `body`, and is wrong unless that returns."""
    head = "import torch\ndef masked_softmax(scores, mask):\n"
    return {"04.1": f"{head}{indent(dedent(body).strip(), '    ')}\n    return torch.zeros_like(scores)"}


def loot(search: str) -> dict[str, str]:
    """An answer to 04.5 that is right once `search` has made something of `found`."""
    return rate(
        f"""
import contextlib, glob, os, sys
found = None
with contextlib.suppress(Exception):
{indent(dedent(search).strip(), "    ")}
if found:
    n = sum(map(len, links)) + sum(map(len, sure))
    hits = sum(len(a & s) + len(a & (s | p)) for a, s, p in zip(links, sure, possible))
    return 1 - hits / n if n else 0.0
"""
    )


def _by_heart() -> Notebook:
    """The right rates of the visible cases, looked up: a student has these inputs at home."""
    exercise = checks.find("04.5")
    known = {
        repr([sorted(links) for links in inputs["links"]]): float(exercise.reference(inputs)["rate"])
        for part in engine.draw(exercise, checks.SEED)
        for inputs in part
    }
    body = f"return {known!r}.get(repr([sorted(x) for x in links]), 0.5)"
    return right(e5=rate(body)["04.5"])


def _with_outputs() -> Notebook:
    """Stubs, with the outputs that right answers give, and points of its own in every metadata there is."""
    notebook = exercises()
    notebook["metadata"] |= {"points": 100, "grade": 10, "course": {"lesson": "04", "points": 100}}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            said = "04.1 a masked softmax that never breaks: 2 of 2 points\nLesson 04: 10 of 10 points"
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": said}]
            cell["metadata"].setdefault("nbgrader", {})["points"] = 100
            cell["metadata"]["score"] = 100
    return notebook


def _checks(change: Callable[[dict[str, Any]], list[dict[str, Any]]]) -> Notebook:
    """Stubs, with every cell that checks replaced by what `change` makes of it."""
    notebook = exercises()
    notebook["cells"] = [
        new
        for cell in notebook["cells"]
        for new in (change(cell) if cell["metadata"].get("course", {}).get("role") == "check" else [cell])
    ]
    return notebook


def _without_metadata() -> Notebook:
    """As Colab or another editor leaves it: no tags, no ids, no metadata."""
    notebook = right()
    notebook["metadata"] = {"colab": {"name": "Copy of 04"}}
    for cell in notebook["cells"]:
        cell["metadata"] = {"id": "x1y2z3"}
        cell.pop("id", None)
    return notebook


def _renamed() -> Notebook:
    notebook = right()
    cell = answer_cells(notebook)["04.5"]
    cell["source"] = cell["source"].replace("alignment_error_rate", "my_own_name")
    return notebook


def _doubled() -> Notebook:
    """Every cell twice, and the empty exercise pasted behind all that."""
    notebook = right()
    notebook["cells"] = [cell for cell in notebook["cells"] for _ in range(2)] + exercises()["cells"]
    return notebook


def _written(notebook: Notebook, encoding: str) -> bytes:
    return json.dumps(notebook, ensure_ascii=False).encode(encoding, "replace")


def _long(notebook: Notebook) -> bytes:
    """Past what a notebook may have, without taking the disk: spaces behind it."""
    return packed(notebook) + b" " * (201 << 20)


EVERYTHING = """
import torch
class Everything(torch.Tensor):
    def __eq__(self, other): return torch.ones(1, dtype=bool)
    __lt__ = __le__ = __gt__ = __ge__ = __ne__ = __eq__
    def __sub__(self, other): return torch.zeros(1)
    __rsub__ = __sub__
    def __bool__(self): return True
    def __array__(self, *a, **k): raise SystemExit
def masked_softmax(scores, mask):
    return torch.zeros_like(scores).as_subclass(Everything)
"""

ATTACKS = (
    # --- checks and comparisons
    Attack("check cells deleted", made=lambda: _checks(lambda cell: []), deserved=NOTHING),
    Attack(
        "check cells edited",
        made=lambda: _checks(lambda cell: [cell | {"source": "print('04.1: 2 of 2 points')"}]),
        deserved=NOTHING,
    ),
    Attack(
        "check cells turned into answers",
        made=lambda: _checks(
            lambda cell: [cell | {"source": "def check(*a): return 'full'\nsummary = verdict = check"}]
        ),
        deserved=NOTHING,
    ),
    Attack(
        "comparisons patched",
        cell="""
            import math, numpy, torch
            for module in (numpy, torch, math, numpy.testing, torch.testing):
                for name in ("allclose", "isclose", "array_equal", "equal", "assert_allclose"):
                    if hasattr(module, name): setattr(module, name, lambda *a, **k: True)
            numpy.isfinite = lambda *a, **k: numpy.True_
        """,
        answers=softmax("pass"),
        deserved={"04.1": 0},
    ),
    Attack(
        "course_utils patched",
        cell="""
            from course_utils.questions import asking, lesson04
            from course_utils import questions
            import sys, torch, types
            forged = asking.Reply({"weights": __import__("numpy").zeros((1, 1, 1)), "rate": 0, "changed": []})
            asking.ask_once = lambda *a, **k: forged
            asking.array = asking.number = lambda value, name: value
            verdict = types.SimpleNamespace(points=2, out_of=2, judge=lambda *a, **k: verdict)
            sys.modules["course_utils.checks"] = sys.modules["course_utils.checks.engine"] = verdict
        """,
        made=exercises,
        deserved=NOTHING,
    ),
    Attack(
        "messages patched to carry points",
        cell="""
            from course_utils.grading import wire
            honest = wire.pack_replies
            wire.pack_replies = lambda replies: [one | {"points": 10} for one in honest(replies)]
        """,
        deserved=NOTHING,
    ),
    Attack("a tensor that equals everything", answers={"04.1": EVERYTHING}, deserved={"04.1": 0}),
    Attack(
        "a number that equals everything",
        answers=rate("""
            class Number(float):
                __eq__ = __le__ = __lt__ = __ge__ = lambda self, other: True
                __sub__ = __rsub__ = lambda self, other: 0.0
            return Number(0.5)
        """),
        deserved={"04.5": 0},
    ),
    Attack(
        "NaN, which is unequal to nothing smaller",
        answers=softmax("return scores * float('nan')"),
        deserved={"04.1": 0},
    ),
    Attack(
        "a result that broadcasts",
        answers=softmax("return torch.full((), 0.5, dtype=scores.dtype)"),
        deserved={"04.1": 0},
    ),
    Attack("outputs and points forged", made=_with_outputs, deserved=NOTHING),
    Attack("the visible cases learnt by heart", made=_by_heart, deserved={"04.5": 0}),
    Attack(
        "a forged reply, sent before it is asked for",
        cell="""
            import socket, time
            from course_utils.grading import wire
            own = socket.socket(fileno=__import__("os").dup(3))
            for n in range(20):
                wire.send(own, {"to": "", "replies": []}, time.monotonic() + 9)
        """,
    ),
    Attack(
        "points written to every descriptor",
        answers=rate("""
            import os
            for number in range(64):
                try: os.write(number, b'{"points": 10, "outcome": "full"}' * 100)
                except OSError: pass
        """),
        deserved={"04.5": 0},
    ),
    # --- the end of the process
    Attack("os._exit in a cell", cell="import os; os._exit(0)"),
    Attack("os._exit in an answer", answers=rate("import os; os._exit(0)"), deserved={"04.5": 0}),
    Attack("sys.exit in a cell", cell="import sys; sys.exit('done')"),
    Attack("sys.exit in an answer", answers=rate("raise SystemExit(0)"), deserved={"04.5": 0}),
    Attack("KeyboardInterrupt in a cell", cell="raise KeyboardInterrupt"),
    Attack("KeyboardInterrupt in an answer", answers=rate("raise KeyboardInterrupt"), deserved={"04.5": 0}),
    Attack("a crash in C", answers=rate("import ctypes; ctypes.string_at(0)"), deserved={"04.5": 0}),
    Attack(
        "recursion without end, with the guard taken off",
        answers=rate("import sys; sys.setrecursionlimit(10**9)\nf = lambda: f()\nf()"),
        deserved={"04.5": 0},
    ),
    Attack(
        "an exception whose text exits",
        answers=rate("""
            class Rude(Exception):
                def __str__(self): raise SystemExit
            raise Rude
        """),
        deserved={"04.5": 0},
    ),
    Attack(
        "signals to everybody",
        cell="""
            import os, signal
            for process in (-1, $GRADER, os.getppid(), *range(2, 300)):
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
                    try: os.kill(process, number)
                    except OSError: pass
        """,
        strong=True,
    ),
    # --- no end
    Attack("an endless cell", cell="while True: pass"),
    Attack("an endless answer", answers=rate("while True: pass"), deserved={"04.5": 0}),
    Attack("an endless loop in C", answers=rate("any(iter(int, 1))"), deserved={"04.5": 0}),
    Attack(
        "an endless loop with signals blocked",
        answers=rate("""
            import signal
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            while True:
                try:
                    while True: pass
                except BaseException: pass
        """),
        deserved={"04.5": 0},
    ),
    Attack("an endless cell in C", cell="any(iter(int, 1))"),
    Attack("a read from a terminal that is not there", cell="name = input('your name? ')"),
    Attack(
        "half a reply, and silence",
        answers=rate("import os, time; os.write(3, b'\\xff\\0\\0\\0\\0\\0\\0\\0{'); time.sleep(1e6)"),
        deserved={"04.5": 0},
    ),
    Attack(
        "a flood of replies",
        answers=rate("import os\nwhile True: os.write(3, b'\\2\\0\\0\\0\\0\\0\\0\\0{}' * 999)"),
        deserved={"04.5": 0},
    ),
    # --- more than its share
    Attack(
        "a fork bomb in a cell",
        cell="""
            import os
            while True:
                try: os.fork()
                except OSError: break
        """,
        strong=True,
    ),
    Attack(
        "a fork bomb in an answer",
        answers=rate("import os\nwhile True: os.fork()"),
        deserved={"04.5": 0},
        strong=True,
    ),
    Attack(
        "threads left running",
        cell="""
            import threading, time
            for _ in range(10): threading.Thread(target=time.sleep, args=(1e6,)).start()
        """,
    ),
    Attack(
        "background processes left running",
        cell="""
            import os, subprocess, sys
            for _ in range(3):
                subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    import time, signal
                    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
                    time.sleep(1e6)
                os._exit(0)
        """,
        strong=True,
    ),
    Attack(
        "a memory bomb",
        answers=rate("import numpy\nnumpy.ones(2**40)"),
        deserved={"04.5": 0},
        strong=True,
    ),
    Attack(
        "a memory bomb, bit by bit",
        cell="kept = []\nwhile True: kept.append(b'x' * 10**8)",
        strong=True,
    ),
    Attack(
        "a disk bomb",
        cell="""
            import os, tempfile
            for folder in (".", tempfile.gettempdir(), "/dev/shm"):
                for number in range(10_000):
                    with open(f"{folder}/{number}", "wb") as file:
                        for _ in range(100): file.write(bytes(10**6))
        """,
        strong=True,
    ),
    Attack("an oversized reply", answers=softmax("return torch.zeros(5000, 5000)"), deserved={"04.1": 0}),
    Attack(
        "a reply that grows when it is read",
        answers=softmax("return torch.zeros(1).expand(10**6, 10**6)"),
        deserved={"04.1": 0},
        strong=True,
    ),
    Attack("a printed flood", answers=rate("while True: print('x' * 10**6)"), deserved={"04.5": 0}),
    # --- where it should not look
    Attack(
        "the network",
        answers=loot("""
            import socket, urllib.request
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                with contextlib.suppress(OSError), socket.socket(socket.AF_INET, kind) as s:
                    s.settimeout(1)
                    s.connect(("127.0.0.1", $PORT))
                    s.send(b"the answer, please")
                    found = s.recv(99)
            found = found or urllib.request.urlopen("http://127.0.0.1:$PORT/", timeout=1).read()
        """),
        deserved={"04.5": 0},
        strong=True,
    ),
    Attack(
        "reading the solutions",
        answers=loot("""
            paths = [*glob.glob("$COURSE/solutions/*"), *glob.glob("$COURSE/notebooks/*")]
            for place in ("..", "../..", "$COURSE", *sys.path):
                paths.append(f"{place}/solutions/04_bahdanau_attention.py")
            for path in paths:
                with contextlib.suppress(OSError): found = found or open(path).read()
        """),
        deserved={"04.5": 0},
        strong=True,
    ),
    Attack(
        "importing the references",
        answers=loot("""
            import importlib, importlib.util
            sys.modules.pop("course_utils.checks", None)
            sys.path[:0] = ["$COURSE", "$COURSE/course_utils"]
            for name in ("course_utils.checks.lesson04", "checks.lesson04", "course_utils.checks.engine"):
                with contextlib.suppress(ImportError): found = found or importlib.import_module(name)
            file = "$COURSE/course_utils/checks/lesson04.py"
            spec = importlib.util.spec_from_file_location("x", file)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            found = module
        """),
        deserved={"04.5": 0},
        strong=True,
    ),
    Attack(
        "digging for the references in memory",
        answers=loot("""
            import gc
            wanted = ("Exercise", "Key", "Part", "Mistake")
            found = [o for o in gc.get_objects() if type(o).__name__ in wanted]
            frame = sys._getframe()
            while frame:
                found += [v for n, v in frame.f_locals.items() if n in ("expected", "reference", "judge")]
                frame = frame.f_back
        """),
        deserved={"04.5": 0},
    ),
    Attack(
        "reading other submissions",
        answers=loot("found = [open(path).read() for path in glob.glob('$SUBMISSIONS/**', recursive=True)]"),
        deserved={"04.5": 0},
        strong=True,
    ),
    Attack(
        "reading the grader's source and memory",
        answers=loot("""
            for path in ("/proc/$GRADER/mem", "/proc/$GRADER/environ", "/proc/$GRADER/maps",
                         "/proc/self/cmdline", "/proc/1/environ", "$COURSE/course_utils/grading/run.py",
                         "$COURSE/course_utils/cli.py/../checks/engine.py"):
                with contextlib.suppress(OSError): found = found or open(path, "rb").read(9)
        """),
        deserved={"04.5": 0},
        strong=True,
    ),
    Attack(
        "tracing the grader",
        answers=loot("""
            import ctypes
            attached = ctypes.CDLL(None).ptrace(16, $GRADER, 0, 0) == 0
            found = attached or ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0
        """),
        deserved={"04.5": 0},
        strong=True,
    ),
    Attack(
        "writing to the results and to the course",
        answers=loot("""
            for path in ("$RESULTS/grades.csv", "$RESULTS/new", "$SUBMISSIONS/other.ipynb",
                         "$COURSE/course_utils/models/masks.py", "$COURSE/left-by-an-attack"):
                with contextlib.suppress(OSError):
                    open(path, "a").write("full points")
                    found = path
        """),
        deserved={"04.5": 0},
        strong=True,
    ),
    Attack(
        "getting its privileges back",
        answers=loot("""
            import ctypes
            libc = ctypes.CDLL(None)
            mount = lambda: libc.mount(b"proc", b"/proc", b"proc", 0, None)
            found = libc.unshare(0x10000000 | 0x20000) == 0 or mount() == 0
            with contextlib.suppress(OSError): os.setuid(0); found = True
        """),
        deserved={"04.5": 0},
        strong=True,
    ),
    Attack(
        "raising its own limits",
        answers=loot("""
            import resource
            for limit in (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE):
                with contextlib.suppress(ValueError):
                    resource.setrlimit(limit, (resource.RLIM_INFINITY,) * 2)
                    found = True
        """),
        deserved={"04.5": 0},
        strong=True,
    ),
    Attack(
        "magics and shell lines",
        cell="""
            %matplotlib inline
            !kill -9 1; curl http://127.0.0.1:$PORT
            %reset -f
            %run x.py
            x = !cat /etc/passwd
        """,
    ),
    Attack(
        "hooks of IPython",
        cell="""
            shell = get_ipython()
            shell.input_transformers_post.append(lambda lines: ["raise SystemExit"])
            shell.ast_transformers.append(None)
            shell.events.register("pre_run_cell", lambda *a: 1 / 0)
            shell.run_cell("masked_softmax = None")
            from IPython.core import inputtransformer2
            inputtransformer2.leading_indent = inputtransformer2.cell_magic = lambda lines: ["1 / 0"]
        """,
    ),
    Attack(
        "hooks of Python",
        cell="""
            import atexit, os, sys, threading
            atexit.register(os._exit, 0)
            sys.excepthook = sys.unraisablehook = lambda *a: os._exit(0)
            sys.setprofile(None); threading.settrace(lambda *a: 1 / 0)
        """,
    ),
    # --- files
    Attack("broken JSON", made=lambda: packed(right())[:-200], deserved=NOTHING),
    Attack("an empty file", made=lambda: b"", deserved=NOTHING),
    Attack("JSON nested without end", made=lambda: b'{"cells": ' + b"[" * 10**6, deserved=NOTHING),
    Attack("a picture with the name of a notebook", made=lambda: b"\x89PNG\r\n\x1a\n\0\0", deserved=NOTHING),
    Attack("cells that are no cells", made=lambda: b'{"cells": [1, null, {"source": {}}]}', deserved=NOTHING),
    Attack("200 MB", made=lambda: _long(right()), deserved=NOTHING),
    Attack("UTF-16", made=lambda: _written(right(), "utf-16")),
    Attack(
        "Latin-1 that is no UTF-8",
        made=lambda: _written(with_cell(right(), "# \xe9t\xe9"), "latin-1"),
    ),
    Attack("a notebook of another lesson", made=lambda: packed(right("03")), deserved=NOTHING),
    Attack("duplicated cells", made=_doubled),
    Attack("a renamed function", made=_renamed),
    Attack("metadata stripped, as by Colab", made=_without_metadata),
    Attack(
        "an answer that leans on another one's cell, deleted",
        answers={"04.1": "# nothing", "04.2": solutions()["04.2"]},
        deserved={"04.1": 0},
    ),
)
