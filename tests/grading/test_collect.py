"""What a class handed in is found, whatever it is called, and no student is lost."""

import io
import json
import os
import stat
import zipfile
from pathlib import Path

import pytest

from course_utils.grading import GradingError
from course_utils.grading import collect as collecting
from course_utils.grading.collect import Unreadable, collect, content, guess_lesson


def notebook(lesson: str = "04", mark: str = "x = 1") -> bytes:
    cells = [{"cell_type": "code", "metadata": {}, "source": [mark], "outputs": [], "execution_count": None}]
    metadata = {"course": {"lesson": lesson}} if lesson else {}
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}).encode()


def folder(root: Path, files: dict[str, bytes | None]) -> Path:
    """A folder with these files; None makes an empty folder."""
    for name, data in files.items():
        path = root / name
        if data is None:
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return root


def zipped(path: Path, files: dict[str, bytes | None]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name if data is not None else f"{name}/", data or b"")
    return path


@pytest.fixture(params=["folder", "zip"])
def made(request, tmp_path):
    """Makes the same files as a folder and as a zip."""
    if request.param == "folder":
        return lambda files: folder(tmp_path / "class", files)
    return lambda files: zipped(tmp_path / "class.zip", files)


def students(source: Path, lesson: str = "04") -> dict[str, str]:
    return {found.student: found.file for found in collect(source, lesson)}


def test_a_folder_of_notebooks_with_any_names(made):
    source = made({"alice.ipynb": notebook(), "Bob B. Baker.ipynb": notebook(), "zoë.IPYNB": notebook()})
    assert students(source) == {
        "alice": "alice.ipynb",
        "Bob B. Baker": "Bob B. Baker.ipynb",
        "zoë": "zoë.IPYNB",
    }


def test_a_folder_a_student(made):
    source = made({"alice/a.ipynb": notebook(), "bob/deep/er/b.ipynb": notebook(), "cy": None})
    assert students(source) == {"alice": "alice/a.ipynb", "bob": "bob/deep/er/b.ipynb", "cy": "cy"}
    assert [found.problem for found in collect(source)][2] == collecting.NOTHING


@pytest.mark.parametrize("top", ["", "submitted/", "course/submitted/"])
def test_the_tree_of_nbgrader_with_other_assignments_in_it(made, top):
    source = made({
        f"{top}alice/ps3/03_x.ipynb": notebook("03"), f"{top}alice/ps4/04_x.ipynb": notebook("04"),
        f"{top}alice/ps4/timestamp.txt": b"2026-01-01", f"{top}bob/ps4/04_x.ipynb": notebook("04"),
    })  # fmt: skip
    if top.startswith("course/") and source.is_dir():
        source = source / "course"
    assert students(source, "04") == {"alice": "alice/ps4/04_x.ipynb", "bob": "bob/ps4/04_x.ipynb"}
    assert "(lesson 03)" in collect(source, "04")[0].notes[0]
    assert students(source, "03")["alice"] == "alice/ps3/03_x.ipynb"


def test_the_course_folder_of_nbgrader_is_more_than_its_submissions(made):
    source = made({"submitted/al/ps4/x.ipynb": notebook(), "source/ps4/x.ipynb": notebook()})
    assert students(source) == {"al": "al/ps4/x.ipynb"}


def test_a_download_of_canvas(made):
    source = made({
        "doejane_12345_90001_hw.ipynb": notebook(mark="first"),
        "doejane_LATE_12345_90017_hw-1.ipynb": notebook(mark="second"),
        "roeric_LATE_2222_90003_my_hw.ipynb": notebook(),
        "solo_333_text.html": b"<p>done</p>",
        "umagil_4_90005_hw.pdf": b"%PDF",
    })  # fmt: skip
    jane, ric, solo, gil = sorted(collect(source, "04"), key=lambda found: found.account)
    assert (jane.student, jane.account, jane.late) == ("doejane", "12345", True)
    assert b"second" in content(jane) and "doejane_12345_90001_hw.ipynb" in jane.notes[0]
    assert (ric.student, ric.late, ric.problem, ric.notes) == ("roeric", True, "", ())
    assert (solo.student, "typed text" in solo.problem) == ("solo", True)
    assert (gil.student, ".pdf" in gil.problem) == ("umagil", True)


@pytest.mark.parametrize("newest", range(3))
def test_of_resubmissions_to_canvas_the_newest_counts(tmp_path, newest):
    suffixes = ["", "-1", "-2"][: newest + 1]
    files = {f"a_1_100_hw{suffix}.ipynb": notebook(mark=f"try{suffix}") for suffix in reversed(suffixes)}
    (chosen,) = collect(folder(tmp_path, files), "04")
    assert f'"try{suffixes[-1]}"'.encode() in content(chosen)
    assert len(chosen.notes) == (newest > 0)


def test_canvas_hides_names_on_request(made):
    source = made({"anon_Ab3xY_90001_hw.ipynb": notebook(), "anon_Cd4zZ_LATE_90002_hw.ipynb": notebook()})
    assert [(found.student, found.late) for found in collect(source)] == [
        ("anon_Ab3xY", False),
        ("anon_Cd4zZ", True),
    ]


def test_names_that_only_look_like_those_of_canvas_are_not_thrown_together(made):
    source = made({f"hw_2024_1130_{name}.ipynb": notebook() for name in ("alice", "bob", "cy")})
    assert len(students(source)) == 3


@pytest.mark.parametrize("ending", ["_file_/", "_file/", "_file_"])
def test_a_download_of_moodle(made, ending):
    source = made({
        f"Jane O'Doe_1234567_assignsubmission{ending}my work.ipynb": notebook(),
        f"Řehoř Ó_7_assignsubmission{ending}x.ipynb": notebook(),
        "Ed_9_assignsubmission_onlinetext_/onlinetext.html": b"<p>x",
    })  # fmt: skip
    found = {one.student: one for one in collect(source, "04")}
    assert set(found) == {"Jane O'Doe", "Řehoř Ó", "Ed"}
    assert found["Jane O'Doe"].account == "1234567" and not found["Jane O'Doe"].problem
    assert "_1234567_assignsubmission" in found["Jane O'Doe"].file  # the report reads the number there
    assert "typed text" in found["Ed"].problem


def test_two_students_of_one_name_stay_two(made):
    source = made({
        "Kim Li_1_assignsubmission_file_/a.ipynb": notebook(),
        "Kim Li_2_assignsubmission_file_/a.ipynb": notebook(),
    })  # fmt: skip
    assert [found.student for found in collect(source)] == ["Kim Li (1)", "Kim Li (2)"]


def test_names_that_only_differ_in_what_cannot_be_shown_stay_two(tmp_path):
    source = folder(tmp_path, {"a\x01.ipynb": notebook(), "a\x02.ipynb": notebook()})
    first, second = students(source)
    assert first != second and "\x01" not in first + second


def test_what_lies_around_is_no_submission(made):
    source = made({
        "alice.ipynb": notebook(), ".DS_Store": b"x", "__MACOSX/._alice.ipynb": b"x", "Thumbs.db": b"",
        ".ipynb_checkpoints/alice-checkpoint.ipynb": notebook(),
    })  # fmt: skip
    assert students(source) == {"alice": "alice.ipynb"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a.py", ".py file"),
        ("a.pdf", ".pdf file"),
        ("a.zip", "unpack it"),
        ("a.html", "web page"),
        ("a", "without .ipynb"),
    ],
)
def test_what_is_no_notebook_is_said(made, name, said):
    found = collect(made({name: b"x", "b.ipynb": notebook()}))[0]
    assert found.student == "a" and said in found.problem
    with pytest.raises(Unreadable, match="handed in"):
        content(found)


def test_what_a_browser_calls_a_notebook_is_one(made):
    assert students(made({"a.ipynb.txt": notebook(), "b.ipynb.json": notebook()})) == {
        "a": "a.ipynb.txt",
        "b": "b.ipynb.json",
    }


def test_of_several_notebooks_those_of_the_lesson_count_and_the_others_are_said(made):
    source = made({
        "al/1.ipynb": notebook("03"), "al/2.ipynb": notebook("04", "this"), "al/3.ipynb": notebook(""),
        "al/broken.ipynb": b"{", "al/data.csv": b"1", "bo/4.ipynb": notebook("04"),
    })  # fmt: skip
    al, _ = collect(source, "04")
    assert al.file == "al/2.ipynb"
    assert "4 notebooks: al/2.ipynb counts" in al.notes[0] and "al/1.ipynb (lesson 03)" in al.notes[0]


def test_in_a_repository_the_exercises_count_and_not_the_lesson(made):
    built = Path(__file__).parents[2]
    files = [next((built / kind).glob("04_*.ipynb")) for kind in ("exercises", "notebooks")]
    source = made(
        {f"{who}/{file.parent.name}/04.ipynb": file.read_bytes() for who in ("al", "bo") for file in files}
    )
    assert students(source) == {"al": "al/exercises/04.ipynb", "bo": "bo/exercises/04.ipynb"}


def test_the_newest_of_several_notebooks_counts(tmp_path):
    folder(tmp_path, {"al/a.ipynb": notebook(), "al/b.ipynb": notebook(), "al/c.ipynb": notebook()})
    for name, when in (("a", 100), ("b", 300), ("c", 200)):
        os.utime(tmp_path / "al" / f"{name}.ipynb", (when, when))
    assert students(tmp_path) == {"al": "al/b.ipynb"}


def test_a_large_file_is_not_read(tmp_path, made):
    source = made({"a.ipynb": b"0" * (collecting.LARGEST + 1), "b.ipynb": notebook()})
    found = collect(source)[0]
    assert "MB" in found.problem


def test_a_zip_that_lies_about_a_size_is_not_believed(tmp_path, monkeypatch):
    monkeypatch.setattr(collecting, "LARGEST", 50_000)
    path = zipped(tmp_path / "x.zip", {"a.ipynb": b"0" * 60_000, "b.ipynb": notebook()})
    raw = path.read_bytes()
    path.write_bytes(raw.replace((60_000).to_bytes(4, "little"), (100).to_bytes(4, "little")))
    a, b = collect(path)
    assert not a.problem
    with pytest.raises(Unreadable):
        content(a)
    assert content(b) == notebook()


def test_hostile_names_in_a_zip_lead_nowhere(tmp_path):
    names = [
        "../../up.ipynb",
        "/abs/olute.ipynb",
        "C:\\evil\\win.ipynb",
        "ok/../in.ipynb",
        "esc\x1b[31m.ipynb",
    ]
    before = sorted(tmp_path.rglob("*"))
    found = collect(zipped(tmp_path / "x.zip", dict.fromkeys(names, notebook())))
    assert len(found) == len(names)
    for one in found:
        assert ".." not in one.file.split("/") and "\x1b" not in one.student + one.file
        assert content(one) == notebook()
    assert sorted(tmp_path.rglob("*")) == [*before, tmp_path / "x.zip"]


def test_links_are_not_followed_and_said(tmp_path):
    secret = tmp_path / "secret.ipynb"
    secret.write_bytes(notebook(mark="secret"))
    source = folder(tmp_path / "class", {"bob.ipynb": notebook()})
    (source / "alice.ipynb").symlink_to(secret)
    (source / "cy").symlink_to(tmp_path)
    linked = {found.student: "a link" in found.problem for found in collect(source)}
    assert linked == {"alice": True, "bob": False, "cy": True}
    archive = tmp_path / "x.zip"
    with zipfile.ZipFile(archive, "w") as writing:
        info = zipfile.ZipInfo("alice.ipynb")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        writing.writestr(info, str(secret))
    assert "a link" in collect(archive)[0].problem


def test_a_file_that_becomes_a_link_or_goes_before_it_is_read_is_not_followed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(notebook())
    found = collect(folder(tmp_path / "class", {"a.ipynb": notebook(), "b.ipynb": notebook()}))
    (tmp_path / "class" / "a.ipynb").unlink()
    (tmp_path / "class" / "a.ipynb").symlink_to(secret)
    (tmp_path / "class" / "b.ipynb").unlink()
    for one in found:
        with pytest.raises(Unreadable, match="cannot be read"):
            content(one)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "a.ipynb")
    assert "plain file" in collect(tmp_path)[0].problem


def test_results_among_the_submissions_are_none(tmp_path):
    source = folder(tmp_path, {"alice.ipynb": notebook(), "results/feedback/alice.html": b"<p>"})
    assert [one.student for one in collect(source, skip=[tmp_path / "results"])] == ["alice"]


def test_the_lesson_is_that_of_most(made):
    source = made({f"{n}.ipynb": notebook("04" if n % 3 else "05") for n in range(9)} | {"x.ipynb": b"{"})
    assert guess_lesson(collect(source)) == "04"


def test_what_cannot_be_graded_at_all_is_said(tmp_path):
    with pytest.raises(GradingError, match="not there"):
        collect(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(GradingError, match="no submissions"):
        collect(tmp_path / "empty")
    (tmp_path / "x.zip").write_bytes(b"PK nonsense")
    with pytest.raises(GradingError, match="not a zip"):
        collect(tmp_path / "x.zip")


def test_names_in_a_zip_that_does_not_say_it_is_utf8(tmp_path):
    """As macOS makes them."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("zoë.ipynb", notebook())
        archive.writestr("al.ipynb", notebook())
    raw = bytearray(buffer.getvalue())
    for mark, offset in ((b"PK\x03\x04", 7), (b"PK\x01\x02", 9)):
        start = raw.find(mark)
        raw[start + offset] &= ~0x08
    (tmp_path / "x.zip").write_bytes(bytes(raw))
    assert set(students(tmp_path / "x.zip")) == {"zoë", "al"}
