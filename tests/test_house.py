"""The house holds together: versions agree, Colab keeps what it has, imports run downwards."""

import ast
import re
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from itertools import chain
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pins(path: Path) -> dict[str, str]:
    """`name==version` lines of a file, by canonical name."""
    lines = re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in lines}


CONSTRAINTS = pins(ROOT / "constraints.txt")
COLAB = pins(ROOT / "tests" / "data" / "colab-pip-freeze.txt")
COLAB_MARKERS = {
    "python_version": "3.13", "python_full_version": "3.13.15", "sys_platform": "linux", "os_name": "posix",
    "platform_system": "Linux", "platform_machine": "x86_64", "implementation_name": "cpython",
    "platform_python_implementation": "CPython", "extra": "",
}  # fmt: skip


def wanted(requirements: list[str], extras: set[str] = frozenset()) -> list[Requirement]:
    """The requirements that apply on Colab."""
    parsed = [Requirement(text) for text in requirements]
    environments = [COLAB_MARKERS | {"extra": extra} for extra in {"", *extras}]
    return [r for r in parsed if r.marker is None or any(r.marker.evaluate(e) for e in environments)]


def resolve_on_colab(requirements: list[Requirement]) -> tuple[dict[str, str], list[str]]:
    """What would be added to Colab's packages (name -> why), and which present ones would have to move.

    Packages that Colab lacks are looked up as installed here, so that their own requirements are followed.
    """
    added, moved, queue = {}, [], [(r, "attention-course") for r in requirements]
    while queue:
        requirement, parent = queue.pop()
        name = canonicalize_name(requirement.name)
        if name in COLAB:
            if not requirement.specifier.contains(COLAB[name], prereleases=True):
                moved.append(f"{parent} wants {requirement}, Colab has {name} {COLAB[name]}")
        elif name not in added:
            added[name] = parent
            own = distribution(name).requires or []
            queue += [(r, name) for r in wanted(own, requirement.extras)]
    return added, moved


def is_pure_python(name: str) -> bool:
    return "Root-Is-Purelib: true" in (distribution(name).read_text("WHEEL") or "")


def test_colab_keeps_every_package_it_has():
    added, moved = resolve_on_colab(wanted(PROJECT["dependencies"]))
    assert not moved
    assert set(added) <= {"colorama", "emoji", "jaxtyping", "portalocker", "sacrebleu", "wadler-lindig"}
    assert [name for name in added if not is_pure_python(name)] == []


def test_the_colab_test_notices_a_package_that_would_move():
    _, moved = resolve_on_colab([Requirement("torch>=2.12"), Requirement("ipywidgets>=8")])
    assert len(moved) == 2


def test_constraints_satisfy_every_requirement():
    extras = chain.from_iterable(PROJECT["optional-dependencies"].values())
    for requirement in map(Requirement, [*PROJECT["dependencies"], *extras]):
        if requirement.name != PROJECT["name"]:
            name = canonicalize_name(requirement.name)
            assert name in CONSTRAINTS, f"{requirement} has no line in constraints.txt"
            assert requirement.specifier.contains(CONSTRAINTS[name])


def test_constraints_are_complete():
    """Nothing that a pinned package pulls in is left open (looked up in the packages installed here)."""
    for name in CONSTRAINTS:
        try:
            own = distribution(name).requires or []
        except PackageNotFoundError:
            continue  # a package of another platform
        for requirement in map(Requirement, own):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert canonicalize_name(requirement.name) in CONSTRAINTS, f"{name} pulls in {requirement}"


def test_environment_yml_agrees_with_constraints():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    listed = environment["dependencies"][-1]["pip"]
    exact = dict(line.split("==") for line in listed if not line.startswith("--"))
    mission = {"jupyterlab", "numpy", "torch", "matplotlib", "ipywidgets", "nbval", "pytest"}
    assert mission <= set(exact)
    assert exact == {name: CONSTRAINTS[name] for name in exact}
    assert "--constraint constraints.txt" in listed and "--editable .[dev]" in listed


LAYERS = [
    {"runtime", "figures"}, {"corpus"}, {"models"}, {"training"}, {"decoding"}, {"metrics"}, {"probes"},
    {"widgets"}, {"claims"}, {"questions"}, {"checks"}, {"authoring"}, {"grading"}, {"cli"},
]  # fmt: skip
HEIGHT = {module: height for height, layer in enumerate(LAYERS) for module in layer}


def imported_parts(path: Path) -> set[str]:
    """The parts of course_utils that a module imports, at its top or inside its functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("course_utils.")}
    return found


def test_imports_run_downwards():
    package = ROOT / "course_utils"
    modules = [path for path in package.rglob("*.py") if path != package / "__init__.py"]
    assert len(modules) > 20
    for path in modules:
        part = path.relative_to(package).parts[0].removesuffix(".py")
        above = {other for other in imported_parts(path) - {part} if HEIGHT[other] > HEIGHT[part]}
        assert not above, f"{path.relative_to(ROOT)} imports {above}, which stand above it"


def test_nothing_reads_the_public_address_from_a_second_place():
    address = PROJECT["urls"]["repository"]
    texts = chain.from_iterable(
        (ROOT / folder).rglob("*.py") for folder in ("course_utils", "notebooks", "solutions")
    )
    assert [path for path in texts if address in path.read_text(encoding="utf-8")] == []


@pytest.fixture(scope="module")
def tracked() -> list[Path]:
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]


def test_no_file_names_a_path_of_a_machine(tracked):
    private = re.compile(r"/(?:home|root|Users|work)/\w+|/tmp/\w+")
    this, found = Path(__file__), {}
    for path in tracked:
        if path.suffix in {".py", ".ipynb", ".md", ".toml", ".yml", ".txt", ".cfg"} and path != this:
            hits = private.findall(path.read_text(encoding="utf-8"))
            if hits:
                found[path.name] = hits
    assert not found
