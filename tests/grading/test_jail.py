"""The jail: what the probe says is what a process in it finds, and nothing is promised that does not hold."""

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from course_utils.grading import jail, linux
from course_utils.grading.jail import Isolation

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the jail is made of what Linux has")
AS_ROOT = pytest.mark.skipif(
    sys.platform != "linux" or os.getuid() != 0, reason="only root can be another user"
)
GOODS = ("network", "files", "processes", "memory")


@pytest.fixture(scope="module")
def isolation() -> Isolation:
    return jail.probe()


def needs(isolation: Isolation, means: str) -> None:
    if means not in isolation.means:
        pytest.skip(f"this machine offers no {means}: {isolation.problem}")


@ON_LINUX
def test_with_namespaces_everything_holds(isolation):
    needs(isolation, "namespaces")
    assert isolation.strong and isolation.disk


@ON_LINUX
@pytest.mark.skipif(not linux.landlock() or not linux.can_filter(), reason="no Landlock or seccomp here")
def test_without_namespaces_landlock_and_seccomp_hide_files_and_network():
    found = jail.trial(("landlock", "seccomp"))
    assert not found.problem
    assert found.files and found.network and found.memory


@ON_LINUX
def test_the_trial_sees_that_nothing_holds_where_nothing_is_used():
    found = jail.trial(())
    assert not found.problem
    assert not found.files and not found.network and not found.strong


@ON_LINUX
def test_a_jail_that_cannot_be_entered_is_a_problem_not_a_promise(monkeypatch):
    monkeypatch.setattr(jail, "BOOT", "raise SystemExit('no such luck')")
    found = jail.trial(("namespaces",))
    assert found.problem == "no such luck"
    assert not found.strong


@ON_LINUX
def test_the_probe_falls_back_and_says_what_failed(monkeypatch):
    ways = {("a",): Isolation(problem="not here"), ("b",): Isolation(("b",), files=True)}
    monkeypatch.setattr(jail, "_ways", lambda: iter(ways))
    monkeypatch.setattr(jail, "trial", ways.get)
    found = jail.probe.__wrapped__()
    assert found.means == ("b",) and found.files and not found.strong
    assert "A stronger way failed here: not here" in found.words


PYTHON = Path("/usr/bin/python3")  # one that every user may read


def tried_by(user: int, means: tuple[str, ...]) -> Isolation:
    program = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); from course_utils.grading import jail; "
        "from dataclasses import asdict; print(json.dumps(asdict(jail.trial(json.loads(sys.argv[2])))))"
    )
    command = [PYTHON, "-c", program, str(jail.PACKAGE.parent), json.dumps(means)]
    done = subprocess.run(
        command, user=user, group=user, extra_groups=[], capture_output=True, text=True, env={}
    )
    assert not done.returncode, done.stderr
    return Isolation(**json.loads(done.stdout))


@pytest.fixture
def plain_user() -> int:
    user = 61_234
    check = "import sys; assert sys.version_info >= (3, 11); open(sys.argv[1])"
    command = [PYTHON, "-c", check, jail.__file__]
    if not PYTHON.exists() or subprocess.run(command, user=user, capture_output=True).returncode:
        pytest.skip("no Python here that another user could run the course with")
    return user


@AS_ROOT
@pytest.mark.parametrize("first", ["namespaces", "landlock"])
def test_what_holds_for_a_teacher_who_is_not_root(plain_user, isolation, first):
    needs(isolation, first)
    means = tuple(name for name in ("namespaces", "landlock", "seccomp") if name in isolation.means)
    found = tried_by(plain_user, means[means.index(first) :])
    assert not found.problem
    assert found.strong


@AS_ROOT
def test_what_holds_for_root_without_namespaces(plain_user, isolation):
    """As in a container: another user than root, so that the number of processes is limited."""
    needs(isolation, "landlock")
    found = tried_by(0, ("user", "landlock", "seccomp"))
    assert not found.problem
    assert found.strong


@pytest.mark.parametrize("missing", GOODS)
def test_strong_means_all_of_it(missing):
    everything = Isolation(("x",), True, True, True, True, True)
    assert everything.strong
    assert not replace(everything, **{missing: False}).strong


def test_the_words_tell_the_two_apart():
    everything, nothing = Isolation(("x",), True, True, True, True, True), Isolation()
    assert len(everything.words) == len(nothing.words) == 6
    assert not set(everything.words) & set(nothing.words)
    assert any("OPEN" in line for line in nothing.words)
    assert not any("OPEN" in line or "NOT" in line for line in everything.words)


def test_isolation_travels_to_other_processes_as_plain_values():
    isolation = Isolation(("landlock",), files=True)
    back = json.loads(json.dumps(asdict(isolation)))
    assert Isolation(**back | {"means": tuple(back["means"])}) == isolation


@ON_LINUX
def test_of_the_course_only_the_package_is_shown():
    shown = jail.shown()
    assert sys.base_prefix in shown or any(sys.base_prefix.startswith(f"{path}/") for path in shown)
    root = str(jail.PACKAGE.parent)
    for path in shown:
        assert not path.startswith((f"{root}/solutions", f"{root}/notebooks", f"{root}/exercises"))
        assert path not in ("/", root, str(Path.home()))


@ON_LINUX
def test_what_is_hidden_is_left_out_of_its_folder(tmp_path):
    for name in ("a/x", "b/secret/y", "b/open"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "b" / "way").symlink_to(tmp_path / "b" / "secret")
    seen = set(jail._without(str(tmp_path), [str(tmp_path / "b" / "secret")]))
    assert seen == {str(tmp_path / "a"), str(tmp_path / "b" / "open")}
    assert list(jail._without(str(tmp_path), [])) == [str(tmp_path)]
    assert list(jail._without(str(tmp_path), [str(tmp_path)])) == []


LOOK = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from course_utils.grading.jail import Ward
ward = Ward(json.loads(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4]))
ward.enter()
reading, writing = os.pipe()
scratch = ward.scratch(1)
child = ward.fork()
if not child:
    ward.apply(writing, scratch)
    found = []
    for path in json.loads(sys.argv[5]):
        try:
            found.append(len(open(path).read()) > 0)
        except OSError:
            found.append(False)
    os.write(3, json.dumps(found).encode())
    os._exit(0)
os.close(writing)
print(os.read(reading, 999).decode(), flush=True)
ward.end(child)
os._exit(0)
"""


@ON_LINUX
@pytest.mark.parametrize("first", ["namespaces", "landlock"])
def test_what_is_to_be_hidden_is_hidden_also_among_what_is_shown(isolation, first, tmp_path):
    """Somebody may keep the submissions in a folder that Python lives in: here, two packages stand for it."""
    needs(isolation, first)
    means = isolation.means[isolation.means.index(first) :]
    tqdm = Path(importlib.util.find_spec("tqdm").origin).resolve().parent
    typer = Path(importlib.util.find_spec("typer").origin).resolve()
    paths = [
        f"{tqdm}/__init__.py",
        f"{tqdm}/contrib/__init__.py",
        str(typer),
        str(typer.with_name("main.py")),
        "/proc/cpuinfo",  # torch chooses by it how to compute
    ]
    hidden = json.dumps([str(tqdm), str(typer)])
    arguments = [str(jail.PACKAGE.parent), json.dumps(means), str(tmp_path), hidden, json.dumps(paths)]
    command = [sys.executable, "-c", LOOK, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    assert json.loads(done.stdout) == [False, False, False, True, True]


def test_on_other_systems_the_modules_import_and_promise_nothing():
    """As on Windows: no resource module, no C library to call, none of the calls that POSIX has."""
    program = """
import asyncio, multiprocessing, os, platform, signal, socket, subprocess, sys, tempfile, torch
sys.path.insert(0, sys.argv[1])
sys.platform, sys.modules["resource"] = "win32", None
for name in ("fork", "getuid", "setsid", "waitid", "O_PATH"): delattr(os, name)
for name in ("SIGALRM", "setitimer", "pthread_kill"): delattr(signal, name)
from course_utils.grading import jail, run, zygote
isolation = jail.probe()
assert not isolation.means and not isolation.strong and not run.Zygote(isolation).forks
assert "OPEN" in " ".join(isolation.words)
jail.limit(0)
"""
    command = [sys.executable, "-c", program, str(jail.PACKAGE.parent)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr


def test_the_environment_is_clean(monkeypatch):
    monkeypatch.setenv("A_TOKEN", "secret")
    monkeypatch.setenv("PYTHONSTARTUP", "x.py")
    own = jail.environment()
    assert not {"A_TOKEN", "PYTHONSTARTUP"} & own.keys()
    assert own["OMP_NUM_THREADS"] == "1" and own["CUDA_VISIBLE_DEVICES"] == ""


@ON_LINUX
def test_the_numbers_of_system_calls_are_those_of_this_machine():
    """Against the C library's headers, where they are installed."""
    headers = [
        Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        Path("/usr/include/asm-generic/unistd.h"),
    ]
    tables = {**linux._DENIED, **linux._ON_SELF_ONLY, "clone": linux._CLONE, "clone3": linux._CLONE3}
    compared = 0
    for column, header in enumerate(headers):
        if not header.exists():
            continue
        known = dict(
            line.split()[1:3] for line in header.read_text().splitlines() if line.startswith("#define __NR")
        )
        for name, numbers in tables.items():
            number = known.get(f"__NR_{name}", known.get(f"__NR3264_{name}"))
            if number is not None:
                assert int(number) == numbers[column], name
                compared += 1
    if not compared:
        pytest.skip("no headers of the C library here")
    assert compared >= len(tables) - 1
