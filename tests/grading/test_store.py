"""What was graded is kept, and only for what it was made from."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from course_utils.checks.engine import Finding, PartVerdict
from course_utils.grading import GradingError
from course_utils.grading.collect import Submission
from course_utils.grading.grades import Grade, ItemGrade, Shortcut
from course_utils.grading.store import Settings, judging_code, opened

SETTINGS = Settings("04", seed=3)
AL = Submission("Al", "al.ipynb", Path("al.ipynb"))
PART = PartVerdict("a part", 0, 2, Finding("wrong", "there", "no mask", "weights"), ("one", "two"))
ITEM = ItemGrade("04.1", "masked softmax", "wrong", (PART,), ("a note",), (Shortcut("torch.x", 3, "x"),), 0.5)
GRADE = Grade("Al", "al.ipynb", "04", (ITEM,), ("said",), True, 1.5, "17")


def test_a_grade_comes_back_as_it_was(tmp_path):
    key = SETTINGS.key(b"x", AL)
    with opened(tmp_path) as store:
        assert store.load(AL, key) is None
        store.save(AL, key, GRADE)
        assert store.load(AL, key) == GRADE
    with opened(tmp_path) as store:
        assert store.load(AL, key) == GRADE


@pytest.mark.parametrize(
    ("content", "submission", "settings"),
    [
        (b"y", AL, SETTINGS),
        (None, AL, SETTINGS),
        (b"x", replace(AL, late=True), SETTINGS),
        (b"x", replace(AL, notes=("2 notebooks",)), SETTINGS),
        (b"x", AL, replace(SETTINGS, lesson="05")),
        (b"x", AL, replace(SETTINGS, seed=4)),
        (b"x", AL, replace(SETTINGS, hidden=2)),
        (b"x", AL, replace(SETTINGS, cell_seconds=20)),
    ],
)
def test_whatever_changes_a_grade_changes_its_key(content, submission, settings):
    assert settings.key(content, submission) != SETTINGS.key(b"x", AL)
    assert replace(SETTINGS, secret=("a",)).key(b"x", AL) == SETTINGS.key(b"x", AL)


def test_other_code_is_another_key(monkeypatch):
    before = SETTINGS.key(b"x", AL)
    read = Path.read_bytes
    judging_code.cache_clear()
    changed = lambda path: read(path) + b"#" * (path.name == "lesson04.py")  # noqa: E731
    monkeypatch.setattr(Path, "read_bytes", changed)
    assert SETTINGS.key(b"x", AL) != before
    monkeypatch.undo()
    judging_code.cache_clear()
    assert SETTINGS.key(b"x", AL) == before


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"key": 1}', None])
def test_a_broken_file_counts_as_none(tmp_path, content):
    key = SETTINGS.key(b"x", AL)
    with opened(tmp_path) as store:
        store.save(AL, key, GRADE)
        [path] = (tmp_path / "state").glob("*.json")
        path.write_text(json.dumps({"key": key, "grade": {"student": "Al"}}) if content is None else content)
        assert store.load(AL, key) is None
        store.save(AL, key, GRADE)
        assert store.load(AL, key) == GRADE


def test_students_whose_names_are_alike_have_a_file_each(tmp_path):
    alike = ["Al", "al", "AL", "Al ", "../Al", "Al\0", "Ål", "A\u030al", "CON", "x" * 300]
    with opened(tmp_path) as store:
        for name in alike:
            store.save(replace(AL, student=name), "key", replace(GRADE, student=name))
        for name in alike:
            assert store.load(replace(AL, student=name), "key").student == name
    assert len(list(tmp_path.rglob("*.json"))) == len(alike)


def test_an_interrupted_write_leaves_the_old_grade(tmp_path, monkeypatch):
    import os

    with opened(tmp_path) as store:
        store.save(AL, "key", GRADE)
        monkeypatch.setattr(os, "replace", lambda *rest: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.save(AL, "other", GRADE)
        monkeypatch.undo()
        assert store.load(AL, "key") == GRADE
        (tmp_path / "state" / ".x.json.left").write_text("{")  # as a kill -9 would
    with opened(tmp_path):
        assert not list((tmp_path / "state").glob(".*"))


def test_the_seed_of_a_run_stays_until_another_is_wanted(tmp_path):
    with opened(tmp_path) as store:
        first = store.seed(None)
    with opened(tmp_path) as store:
        assert store.seed(None) == first
        assert store.seed(None, fresh=True) != first
        assert store.seed(7) == 7
        assert store.seed(None) == 7
        (tmp_path / "state" / "run.json").write_text('{"seed": "x"}')
        assert store.seed(None) >= 0


@pytest.mark.skipif(sys.platform == "win32", reason="Windows locks no folder here")
def test_two_runs_do_not_write_at_once_and_a_killed_one_locks_nobody_out(tmp_path):
    code = (
        "import sys, pathlib, time\nfrom course_utils.grading.store import opened\n"
        "with opened(pathlib.Path(sys.argv[1])):\n    print('in', flush=True)\n    time.sleep(600)"
    )
    other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "in\n"
        with pytest.raises(GradingError, match="another"), opened(tmp_path):
            pass
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    with opened(tmp_path):
        pass


def test_a_folder_that_cannot_be_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(GradingError, match="--out"), opened(tmp_path / "file"):
        pass
