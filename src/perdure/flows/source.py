"""What a replay would not repeat, found in the source of a flow before it ever runs.

It is called when an engine takes up a flow, and by `perdure check`. Names are resolved to the objects that they mean,
so an import under another name is found and a variable that is called `random` is not. Where that is not certain,
nothing is said: a false alarm costs the author more than a miss, and replay has the last word anyway.
"""

from __future__ import annotations

import ast
import builtins
import datetime
import functools
import inspect
import linecache
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final, NamedTuple

from perdure.errors import FlowRefused, FlowWarning

from .author import Flow, StepFunction
from .context import Context
from .steps import misplaced, where_options_go

CLOCK: Final = "tells another time on replay; use ctx.now()"
DICE: Final = "gives something else on replay; use ctx.random"
SECRET: Final = "gives something else on replay; call it in a step"
UUID: Final = "gives another one on replay; use ctx.uuid()"
SLEEP: Final = "blocks the engine, again on each replay; use await ctx.sleep(...)"
OUTSIDE: Final = "looks at the world, again on each replay; call it in a step"
SETTING: Final = "may be different on replay; pass it to the flow as an argument, or read it in a step"
AWAIT: Final = "is not awaited, so it never happens; put await before it"

# Where, which names, what to do instead. `name()`: only when it is called without arguments.
KNOWN: Final = (
    ("time", "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns", CLOCK),
    ("time", "localtime() gmtime() ctime()", CLOCK),
    ("time", "sleep", SLEEP),
    ("datetime.datetime", "now utcnow today", CLOCK),
    ("datetime.date", "today", CLOCK),
    ("random", "betavariate binomialvariate choice choices expovariate gammavariate gauss getrandbits", DICE),
    ("random", "lognormvariate normalvariate paretovariate randbytes randint random randrange sample", DICE),
    ("random", "seed shuffle triangular uniform vonmisesvariate weibullvariate Random() SystemRandom", DICE),
    ("secrets", "choice randbelow randbits token_bytes token_hex token_urlsafe", SECRET),
    ("uuid", "uuid1 uuid4 uuid6 uuid7", UUID),
    ("os", "urandom", SECRET),
    ("os", "getenv", SETTING),
    ("builtins", "open input", OUTSIDE),
)
MODULES: Final = {where.partition(".")[0] for where, _, _ in KNOWN}
OPERATIONS: Final = {"step"} | {name for name, each in vars(Context).items() if inspect.iscoroutinefunction(each)}
BRANCHING: Final = {"join", "race", "map", "loop"}
"""Operations whose functions are part of the flow. What `ctx.step` is given may do anything."""


Definition = ast.AsyncFunctionDef | ast.FunctionDef


class Finding(NamedTuple):
    """A place in a flow's source: what stands there, and what is wrong with it and better instead."""

    file: str
    line: int
    found: str
    advice: str

    @property
    def text(self) -> str:
        return f"{self.found} {self.advice}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def tell(flow: Flow[Any, Any]) -> None:
    """Warn of each finding, or refuse a strict flow."""
    if flow.findings and flow.strict:
        raise FlowRefused(flow.name, flow.findings)
    for each in flow.findings:
        text = f"flow {flow.name}, {os.path.basename(each.file)}:{each.line}: {each.text}"
        warnings.warn_explicit(text, FlowWarning, each.file, each.line, module=flow.function.__module__)


def findings(function: Callable[..., Any]) -> tuple[Finding, ...]:
    """In the order of lines. None where the source cannot be read."""
    written = inspect.unwrap(function)
    parsed = parse(written) if isinstance(written, FunctionType) else None
    if parsed is None:
        return ()
    flow, lines_before = parsed
    places = {(node.lineno + lines_before, *what) for node, what in _Reader(written, flow).read(flow)}
    return tuple(Finding(written.__code__.co_filename, *place) for place in sorted(places))


def parse(function: FunctionType) -> tuple[Definition, int] | None:
    """The function's syntax tree, and how many lines of its file come before line 1 of that.

    `inspect.getsource` does the same by tokens in Python, which takes several times as long as all the rest here.
    """
    code = function.__code__
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, function.__globals__)[code.co_firstlineno - 1 :]
    if not lines:
        return None
    indent = _indent(lines[0])
    end = max(line for each in _codes(code) for position in each.co_positions() for line in position[:2] if line)
    end -= code.co_firstlineno - 1
    while end < len(lines) and (not lines[end].strip() or _indent(lines[end]) > indent):
        end += 1
    head = ["if True:\n"] if indent else []
    try:
        with warnings.catch_warnings(action="ignore"):  # what there is to say of the syntax was said at the import
            tree = ast.parse("".join([*head, *lines[:end]]))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # not the text that the function was made from
    match tree.body:
        case [ast.AsyncFunctionDef() | ast.FunctionDef() as node]:
            pass
        case [ast.If(body=[ast.AsyncFunctionDef() | ast.FunctionDef() as node])]:
            pass
        case _:
            return None
    return (node, code.co_firstlineno - 1 - len(head)) if node.name == code.co_name else None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


class _Reader:
    """Reads what the flow itself does: its body, and nested functions that it calls or gives to `BRANCHING`.

    Other nested functions are taken for steps, whatever way they become one.
    """

    def __init__(self, function: FunctionType, flow: Definition) -> None:
        code = function.__code__
        nodes = list(ast.walk(flow))
        assigned = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        self._function = function
        self._bound = {name for each in _codes(code) for name in (*each.co_varnames, *each.co_cellvars)}
        self._imported = {name: value for name, value in _imports(nodes) if name not in assigned}
        self._nested = [  # what a decorator makes of a function is not certain: usually a step
            node
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if node.name in self._bound and not node.decorator_list
        ]
        context = code.co_varnames[0] if code.co_argcount else None
        self._context = None if context in assigned else context
        self._known = dict(_known())  # after the imports, which may have loaded one of the modules

    def read(self, flow: Definition) -> Iterator[tuple[ast.expr, tuple[str, str]]]:
        ahead: list[ast.AST] = [*flow.body]
        entered: set[ast.AST] = set()
        while ahead:
            node = ahead.pop()
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.ClassDef():
                    continue
                case ast.Expr(value=ast.Call() as call) if (name := self._durable(call.func)) is not None:
                    yield call, (f"{name}(...)", AWAIT)
                case ast.Call():
                    for what in filter(None, (self._unrepeatable(node), self._misplaced(node))):
                        yield node, what
                    inside = set(self._called(node)) - entered
                    entered |= inside
                    ahead += inside
                case ast.Name() | ast.Attribute() if self._object(node) is os.environ:
                    yield node, ("os.environ", SETTING)
            ahead += ast.iter_child_nodes(node)

    def _unrepeatable(self, call: ast.Call) -> tuple[str, str] | None:
        called = self._object(call.func)
        if type(called) not in (BuiltinFunctionType, FunctionType, MethodType, type):
            return None  # nothing of ours, and who knows whether it can be compared
        name, advice = self._known.get(called, ("", ""))
        bare = not (call.args or call.keywords)
        return (name.removesuffix("()") + "()", advice) if name and (bare or not name.endswith("()")) else None

    def _misplaced(self, call: ast.Call) -> tuple[str, str] | None:
        """Options of a step that were given to its function, which does not take them."""
        if len(call.args) < 2 or self._operation(call.func) != "step":
            return None
        function = self._object(call.args[1])
        function = function.function if type(function) is StepFunction else function
        names = [keyword.arg for keyword in call.keywords if keyword.arg is not None]
        given = misplaced(function, names) if type(function) is FunctionType else []
        if not given:
            return None
        name = call.args[0].value if isinstance(call.args[0], ast.Constant) else "..."
        step = f"{self._context}.step(..., {', '.join(given)})"
        return (
            step,
            f"gives {function.__name__}() an option of the step; {where_options_go(name, function.__name__, given)}",
        )

    def _durable(self, called: ast.expr) -> str | None:
        """The name of what is called, if that must be awaited."""
        operation = self._operation(called)
        if operation is not None:
            return f"{self._context}.{operation}"
        step = self._object(called)
        return step.__name__ if type(step) is StepFunction else None

    def _operation(self, called: ast.expr) -> str | None:
        match called:
            case ast.Attribute(value=ast.Name(id=self._context), attr=name) if name in OPERATIONS:
                return name
            case ast.Call(func=ast.Attribute(value=base, attr="options")):
                return self._operation(base)
            case _:
                return None

    def _called(self, call: ast.Call) -> Iterator[ast.AST]:
        """The bodies of nested functions that run as part of the flow because of this call."""
        yield from self._bodies(call.func)
        operation = self._operation(call.func)
        if operation in BRANCHING:
            for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
                yield from self._bodies(argument)
        elif operation == "attempt":
            for argument in call.args:
                yield from self._block(argument)

    def _block(self, value: ast.expr) -> Iterator[ast.AST]:
        """What `ctx.attempt` is given is a block if its first parameter is `ctx`, else a step."""
        for each in self._nested:
            if isinstance(value, ast.Name) and each.name == value.id and [a.arg for a in each.args.args[:1]] == ["ctx"]:
                yield from each.body

    def _bodies(self, value: ast.expr) -> Iterator[ast.AST]:
        match value:
            case ast.Name(id=name):
                yield from (line for each in self._nested if each.name == name for line in each.body)
            case ast.Lambda(body=body):
                yield body
            case ast.Dict(values=values):
                for each in values:
                    yield from self._bodies(each)
            case ast.DictComp(value=each):
                yield from self._bodies(each)
            case ast.Call(func=called, args=[first, *_]) if self._object(called) is functools.partial:
                yield from self._bodies(first)
            case _:
                pass

    def _object(self, node: ast.expr) -> Any:
        """What an expression means when the flow runs, or None where that is not certain."""
        match node:
            case ast.Name(id=name):
                return self._imported.get(name) if name in self._bound else outer(self._function, name)
            case ast.Attribute(value=value, attr=name):
                return _attribute(self._object(value), name)
            case _:
                return None


def outer(function: FunctionType, name: str) -> Any:
    """What a name means to a function that does not bind it itself, or None where that is not certain."""
    closure, names = function.__closure__, function.__code__.co_freevars
    if closure is not None and name in names:
        try:
            return closure[names.index(name)].cell_contents
        except ValueError:  # not assigned yet
            return None
    module = function.__globals__
    return module[name] if name in module else vars(builtins).get(name)


def _attribute(owner: Any, name: str) -> Any:
    """Owners are told by identity and exact type: an `isinstance` would wake lazy modules and proxies."""
    if owner is datetime.datetime or owner is datetime.date:
        return getattr(owner, name, None)
    return vars(owner).get(name) if type(owner) is ModuleType else None


def _known() -> Iterator[tuple[object, tuple[str, str]]]:
    for where, names, advice in KNOWN:
        module, _, kind = where.partition(".")
        owner = getattr(sys.modules.get(module), kind, None) if kind else sys.modules.get(module)
        prefix = "" if where == "builtins" else f"{where.rpartition('.')[2]}."
        for name in names.split():
            value = getattr(owner, name.removesuffix("()"), None)
            if value is not None:
                yield value, (prefix + name, advice)


def _imports(nodes: list[ast.AST]) -> Iterator[tuple[str, Any]]:
    """What the flow imports in its body. Of modules that are not loaded yet only those that matter are."""
    for node in nodes:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    name = alias.name if alias.asname else alias.name.partition(".")[0]
                    yield alias.asname or name, _module(name)
            case ast.ImportFrom(module=str(module), level=0, names=names):
                for alias in names:
                    yield alias.asname or alias.name, _attribute(_module(module), alias.name)
            case _:
                pass


def _module(name: str) -> ModuleType | None:
    return import_module(name) if name in MODULES else sys.modules.get(name)
