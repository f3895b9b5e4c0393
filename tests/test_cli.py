"""The command `course`: help, versions, messages and exit codes. tests/authoring tests what it does."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from course_utils.cli import app

COMMANDS = ("build", "check", "claims", "grade")


@pytest.fixture
def course(monkeypatch, tmp_path):
    """Runs the command in a small repository whose one lesson is "built" by hand, with the given claims."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "80")
    return lambda *arguments: CliRunner().invoke(app, arguments)


def repository(folder: Path, *claims: tuple[str, str, bool]) -> None:
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "x"\nurls.repository = "https://github.com/a/b"\n'
    )
    (folder / "notebooks").mkdir()
    entries = [
        {
            "id": id,
            "lesson": id[:2],
            "sentence": sentence,
            "holds": holds,
            "measured": "86 BLEU",
            "source": "Table 1",
        }
        for id, sentence, holds in claims
    ]
    for lesson in {entry["lesson"] for entry in entries}:
        outputs = [{"metadata": {"claim": entry}} for entry in entries if entry["lesson"] == lesson]
        notebook = {"cells": [{"outputs": outputs}]}
        (folder / "notebooks" / f"{lesson}_x.ipynb").write_text(json.dumps(notebook))


def test_help_names_every_command_and_costs_no_heavy_import():
    code = "import sys, course_utils.cli as c\ntry: c.app(['--help'])\nexcept SystemExit: pass\n"
    code += "print(sorted({'torch', 'numpy', 'nbformat', 'jupytext', 'IPython'} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.rstrip().endswith("[]")
    for command in COMMANDS:
        assert f" {command} " in said


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_and_its_options(course, command):
    result = course(command, "--help")
    assert result.exit_code == 0
    options = {
        "build": ["--scale", "--check"],
        "check": ["--timeout"],
        "claims": ["--json"],
        "grade": [
            "--out",
            "--lesson",
            "--seed",
            "--workers",
            "--scheduler",
            "--require-isolation",
            "--regrade",
        ],
    }
    for option in options[command]:
        assert option in result.output


def test_no_arguments_show_the_help_and_version_the_version(course):
    assert "Commands" in course().output
    assert course("--version").output == f"attention-course {version('attention-course')}\n"


@pytest.mark.parametrize("command", [("build",), ("build", "--check"), ("claims",)])
def test_outside_the_repository_commands_say_so(course, command):
    result = course(*command)
    assert result.exit_code == 1
    assert "not inside the course's repository" in result.stderr


@pytest.mark.parametrize("command", [("build",), ("check", "04_x.ipynb")])
def test_what_a_base_install_lacks_is_named(course, monkeypatch, command):
    for module in [name for name in sys.modules if name.startswith("course_utils.authoring.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "nbformat", None)
    result = course(*command)
    assert result.exit_code == 1
    assert "needs nbformat" in result.stderr and '".[dev]"' in result.stderr


@pytest.mark.parametrize(
    "arguments", [("build", "--scale", "huge"), ("check",), ("check", "x", "--timeout", "0"), ("bild",)]
)
def test_wrong_usage_exits_with_2(course, arguments):
    assert course(*arguments).exit_code == 2


def test_build_and_check_name_what_is_missing(course, tmp_path):
    repository(tmp_path)
    for arguments, named in (
        (["build"], "no text"),
        (["check", "exercises/04_x.ipynb"], "04_x.ipynb is not there"),
    ):
        result = course(*arguments)
        assert result.exit_code == 1
        assert named in result.stderr


def test_a_stale_notebook_is_said_with_exit_code_1(course, tmp_path):
    repository(tmp_path)
    (tmp_path / "notebooks" / "04_x.py").write_text(
        '# %% [markdown]\n# # X <!-- badge -->\n\n# %% tags=["setup"]\n', encoding="utf-8"
    )
    result = course("build", "--check")
    assert result.exit_code == 1
    assert "04_x.ipynb is not there. Mend with: course build notebooks/04_x.py" in result.stderr


def test_the_ledger_prints_every_claim_readably(course, tmp_path):
    long = (
        "With attention, sentences of more than fifty words hold, and without it they collapse into nonsense."
    )
    repository(tmp_path, ("04.10", "Last.", True), ("04.2", long, True), ("05.1", "Other.", True))
    result = course("claims")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert [line.split()[0] for line in lines if line[:1].isdigit()] == ["04.2", "04.10", "05.1", "3"]
    assert lines[-1] == "3 of 3 claims hold."
    assert long in " ".join(result.output.split())
    assert max(map(len, lines)) <= 80
    assert "measured: 86 BLEU" in result.output and "source: Table 1" in result.output
    assert course("claims", "5").output.startswith("05.1  holds\n")


def test_a_claim_that_does_not_hold_shows_in_the_exit_code(course, tmp_path):
    repository(tmp_path, ("04.1", "It holds.", True), ("04.2", "It does not.", False))
    result = course("claims")
    assert result.exit_code == 1
    assert "04.2  DOES NOT HOLD" in result.output and "1 of 2 claims hold." in result.output
    as_json = course("claims", "--json", "04")
    assert as_json.exit_code == 1
    assert json.loads(as_json.output)[1] == {
        "id": "04.2",
        "lesson": "04",
        "sentence": "It does not.",
        "holds": False,
        "measured": "86 BLEU",
        "source": "Table 1",
    }


def test_a_ledger_without_its_lesson_or_with_a_damaged_notebook_says_so(course, tmp_path):
    repository(tmp_path, ("04.1", "It holds.", True))
    assert "lesson 09 is not built" in course("claims", "9").stderr
    (tmp_path / "notebooks" / "05_y.ipynb").write_text("{")
    result = course("claims")
    assert result.exit_code == 1 and "05_y.ipynb is not a notebook" in result.stderr
