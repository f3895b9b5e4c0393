"""What Linux offers to shut a process in: namespaces, Landlock and seccomp, called through the C library.

Each function does one thing and raises OSError where the kernel refuses. Nothing of it needs root. Other ways
were weighed: bubblewrap has to be installed by an administrator and starts a fresh program, which would
import torch for every student; the package `landlock` on PyPI covers a part, in a development version.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

NEW_MOUNTS, NEW_UTS, NEW_IPC, NEW_USER, NEW_PIDS, NEW_NET = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip


def _call(name: str, *arguments: int | bytes | ctypes.Array | ctypes.Structure | None) -> int:
    result = getattr(_libc, name)(*(ctypes.c_long(a) if type(a) is int else a for a in arguments))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


# --- processes ----------------------------------------------------------------------------------------------

_DEATH_SIGNAL, _DUMPABLE, _SECCOMP, _BOUNDING, _SUBREAPER, _NO_NEW_PRIVILEGES = 1, 4, 22, 24, 36, 38
_SIGKILL = 9


def unshare(flags: int) -> None:
    """Leave the namespaces `flags` for new ones; for process ids, the children do."""
    _call("unshare", flags)


def enter_pids(descriptor: int) -> None:
    """Make children in the process-id namespace that an open /proc/self/ns/pid names."""
    _call("setns", descriptor, NEW_PIDS)


def map_user(user: int, group: int) -> None:
    """In a new user namespace: be who one was, and nobody else."""
    for name, line in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        Path("/proc/self", name).write_text(line)


def die_with_parent() -> None:
    """Be killed when the parent ends. A change of user takes it back."""
    _call("prctl", _DEATH_SIGNAL, _SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Be the parent of all descendants whose own parents end."""
    _call("prctl", _SUBREAPER, 1, 0, 0, 0)


def hide_memory() -> None:
    """Let no process of the same user look into this one's memory."""
    _call("prctl", _DUMPABLE, 0, 0, 0, 0)


def become(user: int, group: int) -> None:
    """As root: be another user, for good."""
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def drop_capabilities() -> None:
    """Give up every privilege that a user namespace gave."""
    for capability in range(64):
        if _libc.prctl(_BOUNDING, ctypes.c_long(capability), 0, 0, 0) < 0:
            break  # the last one that this kernel knows was before
    header = struct.pack("<Ii", 0x20080522, 0)  # version 3, this process
    _call("capset", header, bytes(24))


def no_new_privileges() -> None:
    """No program that is started from here on gains any right, whatever its file says."""
    _call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)


# --- a root of its own --------------------------------------------------------------------------------------

_READ_ONLY, _NO_SETUID, _NO_DEVICES, _BIND, _RECURSIVE, _PRIVATE, _DETACH = 1, 2, 4, 4096, 16384, 1 << 18, 2
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000


def keep_mounts_private() -> None:
    """In a new mount namespace: what is mounted here is seen nowhere else."""
    _call("mount", b"none", b"/", None, _RECURSIVE | _PRIVATE, None)


def mount_memory(path: str, size: int, files: int, mode: str = "1777") -> None:
    """An empty file system in memory, of `size` bytes and so many files at most."""
    options = f"size={size},nr_inodes={files},mode={mode}"
    _call("mount", b"tmpfs", os.fsencode(path), b"tmpfs", _NO_SETUID | _NO_DEVICES, options.encode())


def _bind(source: str, target: str, *, devices: bool = False) -> None:
    """Show `source`, and all that is mounted below it, at `target` too, read-only."""
    _call("mount", os.fsencode(source), os.fsencode(target), None, _BIND | _RECURSIVE, None)
    flags = _READ_ONLY | _NO_SETUID | (0 if devices else _NO_DEVICES)
    _set_flags(target, flags, _AT_RECURSIVE)


def _set_flags(path: str, flags: int, at: int = 0) -> None:
    attributes = struct.pack("<QQQQ", flags, 0, 0, 0)
    _call("syscall", _MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), at, attributes, len(attributes))


DEVICES = ("null", "zero", "full", "random", "urandom")
# What libraries read of the processor, some of them late, to choose how they compute.
PROCESSOR = (
    "/proc/cpuinfo",
    *(f"/sys/devices/system/cpu/{name}" for name in ("possible", "present", "online")),
)


def change_root(place: str, shown: Iterable[str], covered: Iterable[str], writable: Iterable[str]) -> None:
    """Make the root anew, on the empty folder `place`: nothing is there but the paths `shown`, read-only.

    Folders and files in `covered` are empty there; folders in `writable` are for others to mount on.
    """
    processor = {path: Path(path).read_bytes() for path in PROCESSOR if os.path.exists(path)}
    mount_memory(place, 4 << 20, 4096, "755")
    for path in shown:
        target = place + path
        if os.path.islink(path):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.symlink(os.readlink(path), target)
        elif os.path.isdir(path):
            os.makedirs(target, exist_ok=True)
            _bind(path, target)
        elif os.path.exists(path):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            Path(target).touch()
            _bind(path, target)
    for path in covered:
        if os.path.isdir(place + path):
            mount_memory(place + path, 4096, 2, "755")
            _set_flags(place + path, _READ_ONLY)
        elif os.path.isfile(place + path):
            _bind("/dev/null", place + path, devices=True)
    os.makedirs(f"{place}/dev", exist_ok=True)
    for name in DEVICES:
        Path(f"{place}/dev/{name}").touch()
        _bind(f"/dev/{name}", f"{place}/dev/{name}", devices=True)
    for path, text in processor.items():
        os.makedirs(os.path.dirname(place + path), exist_ok=True)
        Path(place + path).write_bytes(text)
    for path in writable:
        os.makedirs(place + path, exist_ok=True)
    os.chdir(place)
    _call("pivot_root", b".", b".")
    _call("umount2", b".", _DETACH)
    os.chdir("/")
    _set_flags("/", _READ_ONLY)


# --- Landlock -----------------------------------------------------------------------------------------------

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
EXECUTE, READ_FILE, READ_FOLDER = 1 << 0, 1 << 2, 1 << 3
READ = EXECUTE | READ_FILE | READ_FOLDER
_ON_FILES = EXECUTE | 1 << 1 | READ_FILE | 1 << 14 | 1 << 15  # with write, truncate, ioctl


def landlock() -> int:
    """Landlock's version here, 0 where there is none."""
    return max(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1), 0) if _libc else 0


def _all_rights(version: int) -> int:
    count = {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)
    return (1 << count) - 1


def restrict(rights: Mapping[str, int | None]) -> None:
    """Landlock: from here on, these rights on these paths (None: all rights) and no others.

    No TCP either (from version 4), no signals to others and no abstract sockets of others (from version 6).
    """
    version = landlock()
    every = _all_rights(version)
    attributes = struct.pack("<QQQ", every, 0b11 if version >= 4 else 0, 0b11 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _call("syscall", _CREATE_RULESET, attributes, size, 0)
    try:
        for path, wanted in rights.items():
            try:
                beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            granted = every if wanted is None else wanted & every
            if not os.path.isdir(path):
                granted &= _ON_FILES
            try:
                _call("syscall", _ADD_RULE, ruleset, 1, struct.pack("<Qi", granted, beneath), 0)
            finally:
                os.close(beneath)
        _call("syscall", _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


# --- seccomp ------------------------------------------------------------------------------------------------

# Numbers of system calls on (x86_64, aarch64).
_DENIED = {
    "socket": (41, 198), "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "mount_setattr": (442, 442), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "pidfd_send_signal": (424, 424), "pidfd_getfd": (438, 438),
    "io_uring_setup": (425, 425), "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "open_by_handle_at": (304, 265),
    "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "setpriority": (141, 140),
    "ioprio_set": (251, 30), "sched_setscheduler": (144, 119), "sched_setattr": (314, 274),
}  # fmt: skip
_ON_SELF_ONLY = {
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
}  # fmt: skip
_CLONE, _CLONE3 = (56, 220), (435, 435)
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_EPERM, _ENOSYS = 1, 38
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST = 0, 4, 16  # offsets in what the filter sees; the first argument's lower half


def can_filter() -> bool:
    """Whether the numbers of the system calls are known for this machine."""
    return platform.machine() in _ARCHITECTURES and _libc is not None


def deny_calls(own: Sequence[int]) -> None:
    """seccomp: no sockets but pairs, no namespaces, no mounts, no looking into others.

    Signals and limits are for the processes in `own` only. Needs no_new_privileges.
    """
    column, architecture = _ARCHITECTURES[platform.machine()]
    refuse = (_RETURN, 0, 0, _ERROR | _EPERM)
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), refuse,
        (_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, 0x40000000), refuse,  # x86's second table of numbers
        (_EQUAL, 0, 1, _CLONE3[column]), (_RETURN, 0, 0, _ERROR | _ENOSYS),  # glibc then calls clone
        (_EQUAL, 0, 4, _CLONE[column]), (_LOAD, 0, 0, _FIRST),
        (_ANY_BIT, 0, 1, NEW_USER | NEW_MOUNTS | NEW_IPC | NEW_PIDS | NEW_NET | NEW_UTS), refuse,
        (_RETURN, 0, 0, _ALLOW),
    ]  # fmt: skip
    for numbers in _DENIED.values():
        program += [(_EQUAL, 0, 1, numbers[column]), refuse]
    for numbers in _ON_SELF_ONLY.values():
        allowed = [(_EQUAL, len(own) - place, 0, one) for place, one in enumerate(own)]
        program += [(_EQUAL, 0, len(own) + 3, numbers[column]), (_LOAD, 0, 0, _FIRST), *allowed, refuse]
        program += [(_RETURN, 0, 0, _ALLOW)]
    program.append((_RETURN, 0, 0, _ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in program))
    filter_ = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(code)))
    _call("prctl", _SECCOMP, 2, filter_, 0, 0)
