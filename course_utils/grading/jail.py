"""The jail around a student's code: what can be had on this machine, measured, and how to get in.

`probe` tries the ways there are on Linux, the strongest first, and tells what the first that works holds
back. Elsewhere there is no jail: a process of its own, time limits, a clean environment, a scratch folder.

    namespaces   a root of its own with nothing in it but Python; no network; its own process ids, so that
                 all processes of a submission end together; scratch in memory, of limited size
    user         where the grader is root: a user that nobody else is
    landlock     files by path, no signals to others
    seccomp      no sockets, no tracing
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from course_utils.grading import linux

with contextlib.suppress(ImportError):  # Windows has none
    import resource

PACKAGE = Path(__file__).resolve().parent.parent
SECRET = (
    *(str(PACKAGE / name) for name in ("checks", "authoring", "grading")),
    # Out of sight anyway, unless somebody keeps the course in a folder that Python lives in.
    *(str(PACKAGE.parent / name) for name in ("solutions", "notebooks", "exercises", "tests", ".git")),
)

MEMORY = 2 << 30  # bytes of address space that student code may take on top of what is loaded
DISK = 64 << 20  # bytes of scratch, and of each file
FILES = 4096  # in scratch
PROCESSES = 48  # threads count, too
SHARED_PROCESSES = 512  # where the user's other processes count, too
PROCESSOR_SECONDS = 900  # of one process; the grader ends it long before, unless it has ended itself
ROOT_PLACE = "/sys"  # a folder that is always there, and of which nothing is shown
SCRATCH, SHARED_MEMORY = "/scratch", "/dev/shm"  # not /tmp: the course itself may lie there


@dataclass(frozen=True)
class Isolation:
    """What the jail is made of here, and what it was seen to hold back."""

    means: tuple[str, ...] = ()
    network: bool = False
    files: bool = False
    processes: bool = False
    memory: bool = False
    disk: bool = False
    problem: str = ""

    @property
    def strong(self) -> bool:
        """Whether student code reads nothing it should not, reaches nobody, and ends with its grading."""
        return self.network and self.files and self.processes and self.memory

    @property
    def words(self) -> list[str]:
        """What holds and what does not, a line each."""
        lines = [f"Isolation: {', '.join(self.means) or 'none but a process of its own and time limits'}."]
        lines += [yes if getattr(self, name) else no for name, (yes, no) in _SAID.items()]
        return lines + ([f"A stronger way failed here: {self.problem}"] if self.problem else [])


_SAID = {
    "network": ("network: closed.", "network: OPEN. Student code can reach whatever this machine reaches."),
    "files": (
        "files: solutions, checks, submissions and results are out of sight.",
        "files: OPEN. Student code can read, and write, whatever you can, the results too.",
    ),
    "processes": (
        "processes: limited in number, and all ended with the submission.",
        "processes: NOT HELD. Student code can start any number, and some may outlive the grading.",
    ),
    "memory": (
        f"memory: at most {MEMORY >> 30} GiB more than Python and torch take, for each process.",
        "memory: NOT LIMITED. Student code can take all there is.",
    ),
    "disk": (
        f"disk: a scratch folder of {DISK >> 20} MiB that goes with the submission.",
        f"disk: files of at most {DISK >> 20} MiB each, but any number of them, until the submission ends.",
    ),
}


# --- what is in sight ---------------------------------------------------------------------------------------


def shown() -> list[str]:
    """The paths that Python needs: itself, its packages, the system's libraries, and this course."""
    prefixes = (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)
    packages = [path for path in sys.path if path.rstrip("/").endswith(("site-packages", "dist-packages"))]
    system = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/etc/ld.so.cache", "/etc/localtime", "/etc/fonts")
    paths = [os.path.realpath(path) for path in (*prefixes, *packages, PACKAGE) if os.path.isdir(path)]
    links = [path for path in system if os.path.islink(path)]
    paths += [path for path in system if os.path.exists(path) and path not in links]
    return links + [path for path in sorted(set(paths)) if not _inside(path, set(paths) - {path})]


def _inside(path: str, folders: Collection[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _without(path: str, hidden: Collection[str]) -> Iterator[str]:
    """`path`, or what is in it, without what is hidden."""
    if not any(_inside(one, [path]) for one in hidden):
        yield path
    elif path not in hidden:
        for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
            if not entry.is_symlink():
                yield from _without(entry.path, hidden)


# --- the process that children are forked from --------------------------------------------------------------


class Ward:
    """The warden's side: it enters namespaces with what it has loaded, forks children, and ends them.

    `place` is an empty folder of the grader for scratch; with namespaces, none is needed.
    After `enter` the caller is another process: the one that called waits for it, and ends with it.
    """

    def __init__(self, means: Sequence[str], place: str, hidden: Sequence[str] = ()):
        self.means, self.place, self.hidden = tuple(means), place, (*SECRET, *hidden)
        self.loaded = self.processes = self.pids = 0
        self.rights: dict[str, int | None] = {}
        # One that no other account and no other process of this machine has.
        self.user = 0x70000000 + os.getpid()

    def enter(self) -> None:
        self.loaded = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        if "namespaces" in self.means:
            self._enter_namespaces()
            self.processes = PROCESSES
        elif "user" in self.means:
            self.processes = PROCESSES
        else:
            self.processes = _tasks() + SHARED_PROCESSES
        with contextlib.suppress(OSError):  # when memory runs out, this goes first, not the grader
            Path("/proc/self/oom_score_adj").write_text("1000")
        linux.adopt_orphans()
        linux.hide_memory()
        self.rights = self._rights()
        if "namespaces" in self.means:
            self.pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
            linux.keep_mounts_private()
            linux.change_root(ROOT_PLACE, shown(), self.hidden, (SCRATCH, SHARED_MEMORY, "/proc"))

    def _enter_namespaces(self) -> None:
        user, group = os.getuid(), os.getgid()
        spaces = linux.NEW_MOUNTS | linux.NEW_UTS | linux.NEW_IPC | linux.NEW_PIDS | linux.NEW_NET
        if user == 0:
            linux.unshare(spaces)
        else:
            linux.unshare(spaces | linux.NEW_USER)
            linux.map_user(user, group)
        child = os.fork()
        if child:
            os.closerange(0, 1024)  # the grader sees an end when the child's side is closed
            os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255)
        linux.die_with_parent()

    def fork(self) -> int:
        """A child, in process ids of its own where there are namespaces: 0 in the child, else its id."""
        if not self.pids:
            return os.fork()
        linux.unshare(linux.NEW_PIDS)
        child = -1
        try:
            child = os.fork()
        finally:
            if child:
                linux.enter_pids(self.pids)
        return child

    def apply(self, connection: int, scratch: str) -> None:
        """In the child: shut the door. Of all descriptors only `connection` stays, as number 3."""
        os.setsid()
        _keep_only(connection)
        if "namespaces" in self.means:
            linux.unshare(linux.NEW_MOUNTS | linux.NEW_IPC)
            for path in (SCRATCH, SHARED_MEMORY):
                linux.mount_memory(path, DISK, FILES)
        os.chdir(scratch)
        limit(self.loaded)
        if "user" in self.means:
            linux.become(self.user, self.user)
        elif "namespaces" in self.means:
            linux.drop_capabilities()
        resource.setrlimit(resource.RLIMIT_NPROC, (self.processes,) * 2)
        linux.die_with_parent()
        if "landlock" in self.means or "seccomp" in self.means:
            linux.no_new_privileges()
        if "landlock" in self.means:
            linux.restrict(self.rights | {scratch: None, "/dev/null": None})
        if "seccomp" in self.means:
            everybody = (
                (0xFFFFFFFF,) if os.getpid() == 1 else ()
            )  # -1: in a namespace of our own, all are ours
            linux.deny_calls((0, os.getpid(), *everybody))

    def _rights(self) -> dict[str, int | None]:
        """What Landlock is to allow, beside the scratch folder."""
        if "namespaces" in self.means:
            return {"/": linux.READ, SHARED_MEMORY: None}
        open_to_all = (*(f"/dev/{name}" for name in linux.DEVICES), *linux.PROCESSOR)
        rights: dict[str, int | None] = dict.fromkeys(open_to_all, linux.READ)
        for path in map(os.path.realpath, shown()):
            rights[path] = linux.READ_FOLDER  # Python lists the folders that it imports from
            rights |= dict.fromkeys(_without(path, self.hidden), linux.READ)
        return rights

    def scratch(self, number: int) -> str:
        """A fresh folder for a child, before it is forked."""
        if "namespaces" in self.means:
            return SCRATCH
        path = os.path.join(self.place, str(number))
        os.mkdir(path, 0o700)
        if "user" in self.means:
            os.chown(path, self.user, self.user)
            os.chmod(self.place, 0o711)
        return path

    def leave(self) -> None:
        """Remove what is left of scratch, when the grader is gone."""
        if "namespaces" not in self.means:
            remove(self.place)

    def end(self, child: int) -> None:
        """End a child and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
        with contextlib.suppress(ChildProcessError):
            while True:  # orphans have come to us, and theirs will
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    for orphan in _children():
                        with contextlib.suppress(OSError):
                            os.kill(orphan, signal.SIGKILL)
                    time.sleep(0.001)


def remove(folder: str) -> None:
    """Remove a folder that student code may have written to; a folder in it may be closed to its owner."""
    for place, folders, _ in os.walk(folder):
        for name in folders:
            with contextlib.suppress(OSError):
                if not os.path.islink(os.path.join(place, name)):
                    os.chmod(os.path.join(place, name), 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _children() -> list[int]:
    """Our children. With namespaces there is no /proc, and none is left when the first has ended."""
    with contextlib.suppress(OSError):
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    return []


def _tasks() -> int:
    """How many threads and processes our user has."""
    count = 0
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                count += len(os.listdir(f"{entry.path}/task"))
    return count


def _keep_only(connection: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    connection = os.dup(connection)  # it may itself be one of the numbers below
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.dup2(connection, 3)
    os.closerange(4, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def limit(loaded: int) -> None:
    """Limits of the operating system, as far as it has them; `loaded` is the address space in use."""
    limits = {
        "RLIMIT_AS": loaded + MEMORY,
        "RLIMIT_FSIZE": DISK,
        "RLIMIT_CORE": 0,
        "RLIMIT_NOFILE": 256,
        "RLIMIT_CPU": PROCESSOR_SECONDS,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
    }
    for name, value in limits.items():
        with contextlib.suppress(AttributeError, NameError, ValueError, OSError):
            number = getattr(resource, name)
            hard = resource.getrlimit(number)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(number, (value, value))


# --- the probe ----------------------------------------------------------------------------------------------


@functools.cache
def probe() -> Isolation:
    """What holds on this machine: a short trial, in which a process in the jail tries to get at things."""
    if sys.platform != "linux":
        return Isolation()
    problem = ""
    for means in _ways():
        found = trial(means)
        if not found.problem:
            return Isolation(**asdict(found) | {"means": means, "problem": problem})
        problem = problem or found.problem
    return Isolation(problem=problem)


def _ways() -> Iterator[tuple[str, ...]]:
    inner = ("landlock",) if linux.landlock() else ()
    inner += ("seccomp",) if linux.can_filter() else ()
    user = ("user",) if os.getuid() == 0 else ()
    yield from dict.fromkeys([("namespaces", *user, *inner), (*user, *inner), inner, ()])


def trial(means: Sequence[str], seconds: float = 20.0) -> Isolation:
    """What a jail of these means holds back; where it cannot be entered, `problem` says why."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="course-trial-"))
        place = os.path.join(folder, "place")
        os.mkdir(place)
        os.chmod(folder, 0o755)
        secret = Path(folder, "secret")
        secret.write_text("secret")
        secret.chmod(0o644)
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        told = {
            "means": list(means),
            "place": place,
            "secret": str(secret),
            "port": listening.getsockname()[1],
            "grader": os.getpid(),
        }
        start = [sys.executable, *FLAGS, "-c", BOOT, str(PACKAGE.parent), "jail", "look", json.dumps(told)]
        try:
            done = subprocess.run(
                start,
                capture_output=True,
                text=True,
                timeout=seconds,
                start_new_session=True,
                env=environment(),
            )
            report = json.loads(done.stdout.splitlines()[-1])
        except subprocess.TimeoutExpired:
            return Isolation(problem="the trial did not end in time")
        except (IndexError, ValueError):
            lines = done.stderr.strip().splitlines() or ["the trial ended without a word"]
            return Isolation(problem=lines[-1][:200])
        except OSError as error:
            return Isolation(problem=str(error))
        if os.path.exists(f"{folder}/written"):
            report["files"] = False
        return Isolation(tuple(means), **report)


FLAGS = ("-P",)  # the current folder is not where imports come from
BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); import importlib; "
    "getattr(importlib.import_module('course_utils.grading.' + sys.argv[2]), sys.argv[3])(*sys.argv[4:])"
)


def environment(**more: str) -> dict[str, str]:
    """The clean environment of a process that runs student code."""
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
    kept = (
        "HOME",
        "USERPROFILE",
        "APPDATA",
        "SYSTEMROOT",
        "TEMP",
        "TMP",
        "LD_LIBRARY_PATH",
        "DYLD_LIBRARY_PATH",
    )
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "USER": "student",
        "PYTHONHASHSEED": "0",  # the order of sets of texts is the same in every run
        "PYTHONDONTWRITEBYTECODE": "1",
        "CUDA_VISIBLE_DEVICES": "",  # a limit on address space and CUDA do not go together
        "MPLBACKEND": "agg",
        "COURSE_QUIET": "1",
        **dict.fromkeys(threads, "1"),
        **{name: os.environ[name] for name in kept if name in os.environ},
        **more,
    }


def look(told: str) -> None:
    """The trial's own process."""
    given = json.loads(told)
    ward = Ward(given["means"], given["place"])
    ward.enter()
    scratch = ward.scratch(1)
    reading, writing = os.pipe()
    child = ward.fork()
    if child == 0:
        try:
            ward.apply(writing, scratch)
            report = _tried(given, ward, scratch)
        except BaseException as error:
            report = {"problem": f"{type(error).__name__}: {error}"[:200]}
        os.write(3, json.dumps(report).encode())
        time.sleep(60)
        os._exit(0)
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], 15)
    report = json.loads(os.read(reading, 1 << 16)) if ready else {"problem": "no report came in time"}
    ward.end(child)
    # Whoever is left still holds the other end of the pipe.
    if not select.select([reading], [], [], 2)[0] or os.read(reading, 1):
        report["processes"] = False
    print(json.dumps(report), flush=True)
    os._exit(0)


def _tried(given: dict[str, Any], ward: Ward, scratch: str) -> dict[str, Any]:
    """In the jail: try to get at what should be out of reach."""
    import colorsys  # a late import, from a part of Python that nothing has loaded yet
    import csv

    assert colorsys and csv
    Path(scratch, "mine").write_text("what student code may write")
    space = os.statvfs(scratch)
    secrets = (
        given["secret"],
        f"{SECRET[0]}/engine.py",
        f"{SECRET[2]}/jail.py",
        f"/proc/{given['grader']}/maps",
    )
    return {
        "files": not any(map(_readable, secrets)) and not _written(f"{given['secret']}/../../written"),
        "network": not _reachable(given["port"]),
        "memory": _limited_memory(),
        "disk": space.f_blocks * space.f_frsize <= DISK,
        "processes": _limited_processes(ward.processes) and not _signalled(given["grader"]),
    }


def _readable(path: str) -> bool:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return bool(file.read(1))
    return False


def _written(path: str) -> bool:
    with contextlib.suppress(OSError), open(path, "w") as file:
        return file.write("x") > 0
    return False


def _reachable(port: int) -> bool:
    for kind, send in (
        (socket.SOCK_STREAM, lambda s: s.connect(("127.0.0.1", port))),
        (socket.SOCK_DGRAM, lambda s: s.sendto(b"x", ("127.0.0.1", port))),
    ):
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, kind) as tried:
            tried.settimeout(1)
            send(tried)
            return True
    return False


def _signalled(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


def _limited_memory() -> bool:
    import mmap

    try:
        mmap.mmap(-1, 2 * MEMORY).close()
    except OSError as error:
        return error.errno == errno.ENOMEM
    return False


def _limited_processes(most: int) -> bool:
    """Whether a fork is refused at last. The children stay, in sessions of their own, as long as they can."""
    for _ in range(most + 50):
        try:
            child = os.fork()
        except OSError:
            return True
        if child == 0:
            os.setsid()
            time.sleep(60)
            os._exit(0)
    return False
