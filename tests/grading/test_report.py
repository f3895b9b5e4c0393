"""The report of a class: every row there, nothing that a student wrote acts, nothing half written."""

import csv
import io
import json
import os
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_utils.checks.engine import Finding, PartVerdict
from course_utils.grading import report
from course_utils.grading.grades import Grade, ItemGrade, Shortcut
from course_utils.grading.pages import feedback, overview
from course_utils.grading.results import Asked, Run, complete, mistakes, reasons, summary
from course_utils.grading.safe import cell, file_names, printable

RUN = Run(
    "04",
    (Asked("04.1", "masked softmax", 2), Asked("04.2", "additive scores", 3)),
    seed=987654321,
    hidden=3,
    isolation=("no network",),
    seconds=1.5,
    link="https://example.org/exercises/04_x.ipynb",
)
NO_TANH = Finding("Your scores lack the tanh.\nTwo lines.", "the sum <of> both", "no tanh", "scores")
HOSTILE = (
    "<script>alert(1)</script>",
    "=HYPERLINK('x')",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "../../etc/passwd",
    "/absolute",
    "C:\\x",
    "con",
    "NUL",
    "\x1b[31mred",
    "\u202ereversed",
    "half \udc80",
    'quote " and , comma',
    "two\nlines",
    "",
    "   ",
    "x" * 400,
    "李雷",
    "Zoë",
    "Zoe\u0308",
    "anna",
    "Anna",
    "]]>",
    "a/../b",
    "Points Possible",
)


def item(outcome="full", id="04.1", title="masked softmax", points=2, **others) -> ItemGrade:
    earned = points if outcome == "full" else 0
    return ItemGrade(id, title, outcome, (PartVerdict("a part", earned, points),), **others)


def wrong(finding=NO_TANH, example=("your scores [1]", "expected <2>")) -> ItemGrade:
    parts = (PartVerdict("one", 1, 1), PartVerdict("many", 0, 2, finding, example))
    return ItemGrade("04.2", "additive scores", "partial", parts, seconds=0.25)


def grade(student="Ada", items=None, **others) -> Grade:
    items = (item(), wrong()) if items is None else items
    return Grade(student, others.pop("file", f"{student}.ipynb"), "04", items, **others)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
    """The report of a class in which every name, file and text is hostile."""
    evil = '<img src=x onerror=alert(1)>\x1b[2J\u202e & "quoted" \''
    finding = Finding(evil, evil, "no tanh")
    flagged = item(shortcuts=(Shortcut("torch.softmax", 3, evil),), notes=(evil,))
    grades = [grade(name, (flagged, wrong(finding, (evil,))), notes=(evil,), late=True) for name in HOSTILE]
    out = tmp_path_factory.mktemp("class")
    report.write(grades, out, run=RUN)
    return out


class Page(HTMLParser):
    """What a page is made of, for questions that a browser would answer."""

    def __init__(self, content: str):
        super().__init__()
        self.tags, self.attributes, self.open, self.text = [], [], [], ""
        self.feed(content)
        self.close()
        assert self.open == [], f"{self.open} stay open"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def pages(out: Path) -> list[Path]:
    return [out / "class.html", *sorted((out / "feedback").iterdir())]


def rows(content: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content, newline="")))


# ---- tables


def test_grades_csv_has_a_row_a_student_and_a_column_an_exercise(tmp_path):
    grades = [grade(), grade("Bo", (item("stopped"), wrong()), late=True, notes=("two cells answer 04.1",))]
    report.write(grades, tmp_path, run=RUN)
    assert (tmp_path / "grades.csv").read_bytes().startswith(b"\xef\xbb\xbf")  # for Excel
    head, ada, bo = rows((tmp_path / "grades.csv").read_text(encoding="utf-8-sig"))
    assert head == ["student", "file", "04.1", "04.2", "total", "out of", "late", "notes"]
    assert ada == ["Ada", "Ada.ipynb", "2", "1", "3", "5", "", ""]
    assert bo[2:7] == ["0", "1", "1", "5", "late"]
    assert bo[7] == "two cells answer 04.1; 04.1: stopped: out of time"


def test_an_exercise_that_a_grade_does_not_speak_of_is_missing_and_the_course_says_what_it_is_worth():
    stranger = item(id="99.9", points=1000)
    table = rows(report.grades_csv([complete(grade(items=(stranger,)), RUN)], RUN))
    assert table[1][2:6] == ["0", "0", "0", "5"]


def test_canvas_csv_is_what_the_gradebook_imports():
    grades = [
        grade(account="815", file="doejane_815_4711_hw.ipynb"),
        grade("bo@example.org"),
        grade("Jo", account="7", file="Jo_7_assignsubmission_file/a.ipynb"),
        grade("Points Possible"),
    ]
    head, possible, *students = rows(report.canvas_csv(grades, RUN))
    assert head == ["Student", "ID", "SIS Login ID", "Section", "Lesson 04"]  # this order is asked for
    assert possible == ["    Points Possible", "", "", "", "5"]
    assert students[0] == ["Ada", "815", "", "", "3"]
    assert students[1] == ["bo@example.org", "", "bo@example.org", "", "3"]
    assert students[2][1] == ""  # Moodle's number is none of Canvas
    assert not any("Points Possible" in row[0] for row in students)  # or Canvas takes it for the maximum


def test_moodle_csv_is_a_grading_worksheet():
    moodle = grade("Jane Doe", account="1234567", file="Jane Doe_1234567_assignsubmission_file/04.ipynb")
    canvas = grade(account="815", file="doejane_815_4711_hw.ipynb")
    head, jane, other = rows(report.moodle_csv([moodle, canvas], RUN))
    for needed in ("Identifier", "Grade", "Last modified (grade)"):  # without these Moodle refuses the file
        assert needed in head
    jane = dict(zip(head, jane, strict=True))
    assert jane["Identifier"] == "Participant 1234567" and jane["Grade"] == "3"
    assert jane["Maximum Grade"] == "5" and "04.2 additive scores: 1 of 3" in jane["Feedback comments"]
    assert other[0] == ""


def test_no_cell_of_any_table_is_a_formula(hostile):
    for name in ("grades.csv", "canvas.csv", "moodle.csv"):
        table = rows((hostile / name).read_bytes().decode("utf-8-sig"))
        assert len({len(row) for row in table}) == 1 and len(table) >= len(HOSTILE) + 1
        for value in (value for row in table for value in row):
            assert value == "-" or not value.startswith(("=", "+", "-", "@", "\t", "\r")), value
            assert "\n" not in value and "\x1b" not in value


@given(st.text())
def test_a_cell_is_one_harmless_line(text):
    written = cell(text)
    written.encode("utf-8")
    assert not written.startswith(tuple("=+-@")) and len(written.splitlines()) <= 1
    assert written == cell(written)


# ---- names


@given(st.lists(st.tuples(st.one_of(st.sampled_from(HOSTILE), st.text(max_size=5)), st.text(max_size=3))))
@settings(max_examples=200)
def test_file_names_are_safe_and_no_two_alike(students):
    names = file_names(students)
    assert len({name.casefold() for name in names}) == len(students)
    for name in names:
        assert re.fullmatch(r"[\w-]+", re.sub(r"[^\x00-\x7f]", "x", name)) and len(name.encode()) < 200
        assert name.casefold() not in ("con", "nul", "aux", "prn", "com1")


def test_file_names_say_whose_they_are_and_survive_a_student_who_guesses_them():
    assert file_names([("Ada Lovelace", "a"), ("Zoë", "b")]) == ["Ada_Lovelace", "Zoë"]
    twins = file_names([("anna", "1"), ("Anna", "2")])
    guessed = file_names([("anna", "1"), ("Anna", "2"), (twins[0], "3")])
    assert guessed[:2] == twins and guessed[2] not in twins


@given(st.text(alphabet=st.characters(codec=None)))
def test_printable_text_can_be_written_and_commands_nothing(text):
    shown = printable(text)
    assert len(shown) == len(text)
    shown.encode("utf-8")
    assert not set(shown) & {chr(code) for code in range(32) if chr(code) not in "\n\t"}
    ElementTree.fromstring(ElementTree.tostring(_element(shown)))


def _element(text: str) -> ElementTree.Element:
    element = ElementTree.Element("a", name=text)
    element.text = text
    return element


# ---- for machines


def test_results_json_gives_everything_back(hostile, tmp_path):
    grades, run = report.read(hostile / "results.json")
    assert run == RUN and [grade.student for grade in grades] == list(HOSTILE)
    report.write(grades, tmp_path, run=run)
    for path in hostile.rglob("*"):
        if path.is_file():
            assert (tmp_path / path.relative_to(hostile)).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"grades": [], "run": 3}'])
def test_another_file_is_no_results_json(tmp_path, content):
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(ValueError, match=r"results\.json"):
        report.read(tmp_path / "results.json")


def test_junit_counts_what_it_holds_and_carries_the_points(hostile):
    """As Jenkins, GitLab, GitHub's reporters and junitparser read it."""
    root = ElementTree.parse(hostile / "junit.xml").getroot()
    assert root.tag == "testsuites" and len(root) == len(HOSTILE)
    for suite in root:
        assert suite.tag == "testsuite" and suite.get("name") is not None
        cases = suite.findall("testcase")
        assert int(suite.get("tests")) == len(cases) == 2
        for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(attribute)) == len(suite.findall(f"testcase/{tag}"))
        for case in cases:
            assert case.get("name") and case.get("classname") is not None and float(case.get("time")) >= 0
            held = {p.get("name"): p.get("value") for p in case.findall("properties/property")}
            assert {"points", "out_of", "outcome"} <= set(held)
    assert int(root.get("tests")) == 2 * len(HOSTILE) and int(root.get("failures")) == len(HOSTILE)


@pytest.mark.parametrize(
    ("outcome", "tag"),
    [("full", None), ("wrong", "failure"), ("stopped", "error"), ("died", "error"), ("unreadable", "error"),
     ("missing", "skipped"), ("unanswered", "skipped"), ("partial", "failure")],
)  # fmt: skip
def test_junit_tells_outcomes_apart(outcome, tag):
    root = ElementTree.fromstring(report.junit_xml([grade(items=(item(outcome),))], RUN).partition("\n")[2])
    case = root.find("testsuite/testcase")
    assert [child.tag for child in case] == ["properties"] + [tag] * (tag is not None)


def test_junitparser_reads_it(hostile):
    junitparser = pytest.importorskip("junitparser")
    read = junitparser.JUnitXml.fromfile(str(hostile / "junit.xml"))
    assert read.tests == 2 * len(HOSTILE) and read.failures == len(HOSTILE)


# ---- pages


def test_every_page_is_whole_and_nothing_in_it_acts_or_is_fetched(hostile):
    assert len(pages(hostile)) == len(HOSTILE) + 1
    for path in pages(hostile):
        page = Page(path.read_text(encoding="utf-8"))
        assert not {"script", "iframe", "object", "embed", "link", "form", "base"} & set(page.tags)
        assert not any(name.startswith("on") for _, name, _ in page.attributes)
        for tag, name, value in page.attributes:
            if name == "src":
                assert tag == "img" and value.startswith("data:image/png;base64,")
            if name == "href":
                assert value == RUN.link or re.fullmatch(r"#04\.\d|feedback/[^/.]+\.html", value)
        assert "\x1b" not in page.text and "\u202e" not in page.text
        policies = [value for tag, name, value in page.attributes if (tag, name) == ("meta", "content")]
        assert any("default-src 'none'" in policy for policy in policies)


def test_links_of_the_class_page_lead_to_the_feedback(hostile):
    page = Page((hostile / "class.html").read_text(encoding="utf-8"))
    linked = {value for _, name, value in page.attributes if name == "href"}
    assert {f"feedback/{path.name}" for path in (hostile / "feedback").iterdir()} == linked


def test_feedback_gives_the_finding_the_hint_and_the_example():
    page = Page(feedback(grade(late=True, notes=("two cells answer 04.1",)), RUN))
    for said in ("3 of 5 points", "Handed in late", "two cells answer 04.1", "Your scores lack the tanh.",
                 "the sum <of> both", "expected <2>", "04.2 additive scores"):  # fmt: skip
        assert said in page.text, said
    assert ("a", "href", RUN.link) in page.attributes


def test_feedback_names_neither_seed_nor_flags_nor_other_students(tmp_path):
    flagged = item(shortcuts=(Shortcut("torch.nn.Softmax", 3, "return softmax(x)"),))
    report.write([grade(items=(flagged, wrong())), grade("Grace Hopper")], tmp_path, run=RUN)
    text = (tmp_path / "feedback" / "Ada.html").read_text(encoding="utf-8")
    assert not [word for word in (str(RUN.seed), "torch.nn.Softmax", "Hopper") if word in text]
    teacher = Page((tmp_path / "class.html").read_text(encoding="utf-8")).text
    assert str(RUN.seed) in teacher and "04.1 uses torch.nn.Softmax (line 3: return softmax(x))" in teacher


def test_the_class_page_says_whom_to_look_at_and_what_was_hard():
    grades = [grade("full", (item(), item(id="04.2", title="additive scores", points=3)))]
    grades += [grade(f"s{n}") for n in range(3)] + [grade("late", late=True)]
    grades += [grade("slow", (item("stopped"), item("died", id="04.2", points=3)))]
    page = Page(overview(grades, RUN, [f"feedback/{number}.html" for number in range(len(grades))]))
    alts = [value for tag, name, value in page.attributes if (tag, name) == ("img", "alt")]
    assert len(alts) == 3
    assert "04.2 additive scores: 1 all points, 4 some, 0 none, 0 no answer, 1 stopped or died." in alts[0]
    assert "04.2 no tanh: 4." in alts[1]
    assert "0: 1, 1: 0, 2: 0, 3: 4, 4: 0, 5: 1." in alts[2]
    looked = page.text.partition("Who to look at")[2].partition("How hard")[0]
    assert "slow" in looked and "late" in looked and "s1" not in looked
    assert "Isolation was weak" not in page.text


def test_weak_isolation_is_said_first():
    run = Run("04", RUN.exercises, 1, strong=False, isolation=("the network is open",))
    text = Page(overview([grade()], run, ["feedback/Ada.html"])).text
    assert text.index("Isolation was weak") < text.index("the network is open") < text.index("Who to look at")


def test_an_empty_class_has_a_report(tmp_path):
    report.write([], tmp_path, run=RUN)
    assert "Nothing was handed in" in (tmp_path / "class.html").read_text(encoding="utf-8")
    assert summary([], RUN) == "0 submissions of lesson 04: nothing to grade."


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome found")
def test_a_browser_shows_every_page_without_complaint_on_a_telephone_too(hostile):
    from playwright.sync_api import sync_playwright

    said, asked = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 800})
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.on("request", lambda request: asked.append(request.url))
        for path in pages(hostile):
            page.goto(path.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, path.name
        page.goto((hostile / "class.html").as_uri())
        drawn = page.evaluate("[...document.images].map(image => image.naturalWidth)")
        page.get_by_role("link", name="Zoë").first.click()
        assert page.get_by_text("Feedback on lesson 04").is_visible()
        browser.close()
    assert said == [] and len(drawn) == 3 and min(drawn) > 300
    assert all(url.startswith(("file:", "data:")) for url in asked)


# ---- in words


def test_the_last_line_says_what_happened():
    grades = [grade(), grade("b", (item("unreadable"), item("unreadable", id="04.2", points=3)), late=True)]
    assert summary(grades, RUN) == (
        "2 submissions of lesson 04, 1.5 of 5 points on average; 1 unreadable; 1 late."
    )
    assert "with an answer that was stopped" in summary([grade(items=(item("died"),))], RUN)


def test_mistakes_are_counted_once_a_submission():
    both = (PartVerdict("a", 0, 1, NO_TANH), PartVerdict("b", 0, 2, NO_TANH))
    twice = ItemGrade("04.2", "additive scores", "wrong", both)
    assert mistakes([grade(items=(twice,)), grade()]) == [("04.2", "no tanh", NO_TANH.message, 2)]


def test_reasons_are_empty_for_a_student_whom_nobody_need_look_at():
    assert reasons(grade(), RUN) == []
    assert reasons(grade(items=(item("missing"), wrong())), RUN) == [
        "no answer found to 04.1",
        "under half of the points",
    ]


# ---- writing


def test_an_interrupted_report_leaves_the_old_one_and_no_scraps(tmp_path, monkeypatch):
    report.write([grade()], tmp_path, run=RUN)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        report.write([grade("Bo"), grade()], tmp_path, run=RUN)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_pages_of_submissions_that_are_gone_go_and_nothing_else_does(tmp_path):
    report.write([grade(), grade("Bo"), grade("Di")], tmp_path, run=RUN)
    own = tmp_path / "feedback" / "mine.html"
    own.write_text("a page of the teacher's")
    (tmp_path / "outside.html").write_text("")
    stored = json.loads((tmp_path / "results.json").read_text())
    stored["grades"][2]["feedback"] = "feedback/../outside.html"
    (tmp_path / "results.json").write_text(json.dumps(stored))
    report.write([grade("Cy")], tmp_path, run=RUN)
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.html")}
    assert left == {
        "class.html",
        "outside.html",
        "feedback/Cy.html",
        "feedback/Di.html",  # its entry was turned into another path, which nobody follows
        "feedback/mine.html",
    }
