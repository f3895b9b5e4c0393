"""Uses of what an exercise asks to be written, found in the text of the cells without running them.

A use is found where it is called by its full name or through imports, aliases, getattr with a literal name,
importlib, sys.modules and the like. Names that are only put together at run time are not: whoever wants to
hide a call from a reader of the text can. That is why a shortcut costs no points; a teacher looks at it.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Protocol

from course_utils.checks.engine import Exercise
from course_utils.grading.grades import Shortcut

# No answer needs these: they reach the machinery that asks, run text, or look at who is calling.
ALWAYS = (
    "course_utils.authoring",
    "course_utils.checks",
    "course_utils.grading",
    "course_utils.questions",
    "builtins.eval",
    "builtins.exec",
    "builtins.compile",
    "builtins.__import__",
    "ctypes",
    "gc",
    "inspect",
    "sys._getframe",
    "sys.settrace",
)
MANY = 50  # meanings of one name, beyond which a text only wants to cost time
LONG = 100_000  # characters of all cells together, beyond which nobody wrote them

Functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Cell(Protocol):
    """Anything with the source of a cell."""

    source: str


def shortcuts(cells: Sequence[Cell], exercise: Exercise) -> tuple[Shortcut, ...]:
    """The uses of what `exercise` forbids in everything that its function reaches, in the order of the cells.

    A mere import is none, and neither is a use in code that the function never reaches.
    """
    sources = tuple(cell.source for cell in cells)
    if sum(map(len, sources)) > LONG:
        return (Shortcut(f"more than {LONG} characters of code, which were not searched", 0, ""),)
    try:
        return tuple(_Search(_read(sources), exercise).run())
    except (RecursionError, MemoryError):
        return (Shortcut("code that is nested too deeply to be searched", 0, ""),)


class _Notebook:
    """The cells as trees, what their names stand for, and which statements make something of each name."""

    def __init__(self, sources: Sequence[str]):
        self.sources = sources
        self.scope = _Scope()
        self.made_by: dict[str, list[tuple[int, ast.stmt]]] = {}  # name: [(number of the cell, statement)]
        trees = [_parsed(source) for source in sources]
        for number, tree in enumerate(trees):
            self.scope.read(tree.body)
            for statement in tree.body:
                for name in _changes(statement):
                    self.made_by.setdefault(name, []).append((number, statement))
        self.patches = [
            (number, name, node) for number, tree in enumerate(trees) for name, node in self._patches(tree)
        ]

    def _patches(self, tree: ast.Module) -> Iterator[tuple[str, ast.stmt | ast.expr]]:
        """Assignments to parts of course_utils: they may change what is taken down of an answer."""
        for node in ast.walk(tree):
            targets: list[ast.expr] = []
            match node:
                case ast.Assign(targets=targets):
                    pass
                case ast.Call(func=function, args=[target, ast.Constant(value=str(attr)), _]):
                    if "builtins.setattr" in _full_names(function, self.scope):
                        targets = [ast.Attribute(target, attr, ast.Store())]
            for target in targets:
                if isinstance(target, ast.Attribute):
                    for name in _full_names(target, self.scope):
                        if _below(name, "course_utils"):
                            yield name, node


# One notebook is searched for the shortcuts of all its exercises, one after the other.
_read = lru_cache(maxsize=1)(_Notebook)


def _parsed(source: str) -> ast.Module:
    """The tree of a cell, its magics left out; of a cell that is no Python, and so does not run, nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for text in (source, _without_magics(source)):
            try:
                return ast.parse(text)
            except (SyntaxError, ValueError):
                continue
    return ast.Module([], [])


def _is_magic(line: str) -> bool:
    """Does IPython understand this line, and Python not? Magics, lines for the shell, questions."""
    line = line.strip()
    assigned = line.partition("=")[2].lstrip()
    return (
        line.startswith(("%", "!", "?", ",", ";", "/"))
        or line.endswith("?")
        or assigned.startswith(("%", "!"))
    )


def _without_magics(source: str) -> str:
    lines, goes_on = [], False
    for line in source.splitlines():
        magic = _is_magic(line)
        if magic and not goes_on:
            lines.append(line[: len(line) - len(line.lstrip())] + "pass")
        else:
            lines.append("" if goes_on else line)
        goes_on = (magic or goes_on) and line.endswith("\\")
    return "\n".join(lines)


class _Scope:
    """What the names of a module or a function stand for, whatever the order of its lines."""

    def __init__(self, outer: _Scope | None = None):
        self.outer = outer
        self.names: dict[str, list[str | ast.expr]] = {}  # full names, and expressions
        self.stars: list[str] = []  # modules that everything was imported from
        self.known: dict[str, set[str]] = {}

    def bind(self, name: str, *meanings: str | ast.expr) -> None:
        self.names.setdefault(name, []).extend(meanings)

    def home(self, name: str) -> _Scope | None:
        """The scope in which `name` is bound, seen from here."""
        scope: _Scope | None = self
        while scope and name not in scope.names:
            scope = scope.outer
        return scope

    def stands_for(self, name: str) -> set[str]:
        home = self.home(name)
        if home is None:
            outermost = self
            while outermost.outer:
                outermost = outermost.outer
            if hasattr(builtins, name):
                return {f"builtins.{name}"}
            return {f"{module}.{name}" for module in outermost.stars}
        if name not in home.known:
            home.known[name] = set()  # for a name that is defined by itself
            for meaning in home.names[name]:
                home.known[name] |= {meaning} if isinstance(meaning, str) else _full_names(meaning, home)
            home.known[name] = set(sorted(home.known[name])[:MANY])
        return home.known[name]

    def read(self, statements: Iterable[ast.AST]) -> None:
        """Bind what the statements bind, in this scope alone."""
        for node in _in_this_scope(statements):
            match node:
                case ast.Import(names=names):
                    for alias in names:
                        self.bind(
                            alias.asname or alias.name.partition(".")[0],
                            alias.name if alias.asname else alias.name.partition(".")[0],
                        )
                case ast.ImportFrom(module=module, names=names):
                    for alias in names:
                        if alias.name == "*":
                            self.stars.append(module or "")
                        else:
                            self.bind(alias.asname or alias.name, f"{module}.{alias.name}")
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    self.bind(name)
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        self.pair(target, value)
                case ast.AnnAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
                    self.pair(target, value)
                case ast.Name(id=name, ctx=ast.Store()):
                    self.bind(name)

    def pair(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name) and value is not None:
            self.bind(target.id, value)
        elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            for one, its_value in zip(target.elts, value.elts, strict=False):
                self.pair(one, its_value)


def _in_this_scope(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes and all below them, but not what is inside functions and classes."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (*Functions, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)


def _full_names(node: ast.expr | None, scope: _Scope) -> set[str]:
    """The full names, such as "torch.nn.functional.softmax", that an expression may stand for."""
    match node:
        case ast.Name(id=name):
            return scope.stands_for(name)
        case ast.Attribute(value=value, attr="__dict__"):
            return _full_names(value, scope)
        case ast.Attribute(value=value, attr=attr):
            return {f"{base}.{attr}" for base in _full_names(value, scope)}
        case ast.Subscript(value=value, slice=ast.Constant(value=str(key))):
            bases = _full_names(value, scope)
            return {key if base == "sys.modules" else f"{base}.{key}" for base in bases}
        case ast.Call(func=function, args=[first, *others]):
            return _call(_full_names(function, scope), first, others, scope)
        case ast.NamedExpr(value=value):
            return _full_names(value, scope)
        case ast.IfExp(body=one, orelse=other):
            return _full_names(one, scope) | _full_names(other, scope)
        case ast.BoolOp(values=values):
            return set().union(*(_full_names(value, scope) for value in values))
    return set()


def _call(functions: set[str], first: ast.expr, others: list[ast.expr], scope: _Scope) -> set[str]:
    """What a call gives, where it gives a module, or a part of one."""
    if "builtins.vars" in functions:
        return _full_names(first, scope)
    if functions & {"importlib.import_module", "builtins.__import__"}:
        match first:
            case ast.Constant(value=str(name)):
                return {name, name.partition(".")[0]}  # __import__ gives the first part, the other the whole
    if "builtins.getattr" in functions:
        match others:
            case [ast.Constant(value=str(attr)), *_]:
                return {f"{base}.{attr}" for base in _full_names(first, scope)}
    return set()


class _Search:
    """Walks through the code that the exercise's function reaches, and takes down what is forbidden."""

    def __init__(self, notebook: _Notebook, exercise: Exercise):
        self.notebook, self.module = notebook, notebook.scope
        self.function, self.forbidden = exercise.function, (*exercise.forbidden, *ALWAYS)
        self.methods = {
            name.removeprefix("torch.Tensor.")
            for name in exercise.forbidden
            if name.startswith("torch.Tensor.")
        }
        self.cell = 0
        self.found: dict[tuple[int, int, str], Shortcut] = {}
        self.reached: set[str] = set()
        self.waiting: list[str] = []
        self.visited: set[int] = set()

    def run(self) -> list[Shortcut]:
        for number, name, node in self.notebook.patches:
            self.cell = number
            self.take_down(f"{name} = ...", node)
        self.reach(self.function)
        while self.waiting:
            for number, statement in self.notebook.made_by.get(self.waiting.pop(), ()):
                if id(statement) not in self.visited:
                    self.visited.add(id(statement))
                    self.cell = number
                    self.visit(statement, self.module)
        return [self.found[place] for place in sorted(self.found)]

    def reach(self, name: str) -> None:
        if name not in self.reached:
            self.reached.add(name)
            self.waiting.append(name)

    def visit(self, node: ast.AST, scope: _Scope) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                return self.visit_function(node, scope)
            case ast.ClassDef():
                inner = _Scope(scope)
                inner.read(node.body)
                for part in (*node.decorator_list, *node.bases, *(k.value for k in node.keywords)):
                    self.visit(part, scope)
                # Methods do not see the names of their class; the statements beside them do.
                for part in node.body:
                    self.visit(part, scope if isinstance(part, Functions) else inner)
                return None
            case ast.AnnAssign(target=target, value=value):
                for part in (target, value):
                    if part is not None:
                        self.visit(part, scope)
                return None
            case ast.Import() | ast.ImportFrom():
                return None
            case ast.Assign() if self.is_alias(node, scope):
                return None  # it counts where the other name is used
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                inner = _Scope(scope)
                inner.read([generator.target for generator in node.generators])
                scope = inner
            case ast.Name(id=name, ctx=ast.Load()) if scope.home(name) is self.module:
                self.reach(name)
        if isinstance(node, ast.expr) and self.judge(node, scope):
            return None
        for child in ast.iter_child_nodes(node):
            self.visit(child, scope)
        return None

    def visit_function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: _Scope
    ) -> None:
        inner = _Scope(scope)
        arguments = node.args
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        for argument in (*every, *filter(None, (arguments.vararg, arguments.kwarg))):
            inner.bind(argument.arg)
        outside = [*arguments.defaults, *filter(None, arguments.kw_defaults)]
        if isinstance(node, ast.Lambda):
            body: list[ast.AST] = [node.body]
        else:
            outside += node.decorator_list
            body = list(node.body)
        inner.read(body)
        for name in _declared_outside(body):
            inner.names.pop(name, None)
        for part in outside:
            self.visit(part, scope)
        for part in body:
            self.visit(part, inner)

    def is_alias(self, node: ast.Assign, scope: _Scope) -> bool:
        """Is this a line of a cell that only gives something another name, and not that of the answer?"""
        named = all(isinstance(target, ast.Name) for target in node.targets)
        if not named or scope is not self.module or self.function in _changes(node):
            return False
        return bool(_full_names(node.value, scope))

    def judge(self, node: ast.expr, scope: _Scope) -> bool:
        """Take `node` down if it stands for something forbidden."""
        names = _full_names(node, scope)
        for name in sorted(names):
            if any(_is(name, forbidden) for forbidden in self.forbidden):
                self.take_down(name.removeprefix("builtins."), node)
                return True
        method = _method(node, scope)
        if method in self.methods:
            self.take_down(f"torch.Tensor.{method}", node)
            return True
        return False

    def take_down(self, name: str, node: ast.expr | ast.stmt) -> None:
        lines = self.notebook.sources[self.cell].splitlines()
        source = lines[node.lineno - 1].strip() if node.lineno <= len(lines) else ""
        self.found[self.cell, node.lineno, name] = Shortcut(name, node.lineno, source[:200])


def _changes(statement: ast.stmt) -> set[str]:
    """The names that a statement binds, and those of the things that it puts something into."""
    names = set()
    for node in _in_this_scope([statement]):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
                root: ast.expr = node
                while isinstance(root, ast.Attribute | ast.Subscript):
                    root = root.value
                if isinstance(root, ast.Name):
                    names.add(root.id)
    return names


def _declared_outside(body: Iterable[ast.AST]) -> set[str]:
    declared = (node for node in _in_this_scope(body) if isinstance(node, ast.Global | ast.Nonlocal))
    return {name for node in declared for name in node.names}


def _method(node: ast.expr, scope: _Scope) -> str:
    """The method that is looked up in something of which only running the code would tell what it is."""
    match node:
        case ast.Attribute(value=value, attr=attr) if not _full_names(value, scope):
            return attr
        case ast.Call(func=function, args=[value, ast.Constant(value=str(attr)), *_]):
            if "builtins.getattr" in _full_names(function, scope) and not _full_names(value, scope):
                return attr
    return ""


def _below(name: str, above: str) -> bool:
    return name == above or name.startswith(f"{above}.")


def _is(name: str, forbidden: str) -> bool:
    """Is `name` the forbidden thing, or below it? Things of torch count wherever torch keeps them."""
    if _below(name, forbidden) or _below(_written_in(name), forbidden):
        return True
    kept_elsewhere = name.startswith("torch.") and forbidden.startswith("torch.")
    return kept_elsewhere and name.rpartition(".")[2] == forbidden.rpartition(".")[2]


@lru_cache(maxsize=1024)
def _written_in(name: str) -> str:
    """The full name of a thing of the course where it is written, for one that another module hands on."""
    module, _, attr = name.rpartition(".")
    if not _below(module, "course_utils"):
        return name
    thing = None
    with contextlib.suppress(Exception):
        thing = vars(importlib.import_module(module)).get(attr)
    return f"{getattr(thing, '__module__', module)}.{attr}"
