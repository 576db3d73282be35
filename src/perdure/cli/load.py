"""Finding code: `MODULE:FLOW`, or all that a module or a file has. The current directory is importable."""

import difflib
import os
import sys
import traceback
from contextlib import redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

from perdure.app.ours import FILES, kind_of_file
from perdure.kernel.workflows import Workflows
from perdure.runtime.state import Keyed

from .exits import Stopped

PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
"""Where our own files are: no place that an author can mend."""


def load(target: str) -> tuple[Any, list[Any]]:
    """The workflow, and every workflow of its module: children of the workflow are usually among them."""
    if target.endswith(FILES):
        definition = load_file(target)
        if hasattr(definition, "require_valid"):
            definition.require_valid()
        return definition, [definition]
    module_name, found, name = target.partition(":")
    if not (module_name and found and name):
        raise Stopped(
            f"{target!r} names no flow; write MODULE:FLOW, like shop:order, or the file of a playbook or a process"
        )
    module = module_of(module_name)
    workflows = _workflows(module)
    workflow = _attribute(module, name, workflows)
    made = [] if _is_workflow(workflow) else _of_dialects(workflow)
    if made:
        workflow = made[0]
    if not _is_workflow(workflow):
        is_step = type(workflow).__name__ == "StepFunction"
        advice = "" if isinstance(workflow, Keyed) or is_step else "; put @perdure.flow above it"
        if isinstance(workflow, Keyed) and workflow.policy.created == "message":
            advice = "; the first event that is routed to it makes it: perdure.open(...)"
        raise Stopped(f"{target} is {_kind(workflow)}, not a flow{advice}{_choice(module, workflows)}")
    return workflow, list({id(each): each for each in (workflow, *workflows.values())}.values())


def load_file(file: str) -> Any:
    """The definition that stands in a file. It may have problems."""
    if not os.path.isfile(file):
        folder = os.path.dirname(file)
        beside = [
            os.path.join(folder, each) for each in (os.listdir(folder or ".") if os.path.isdir(folder or ".") else ())
        ]
        near = difflib.get_close_matches(file, [each for each in beside if each.endswith(FILES)], n=1)
        raise Stopped(f"there is no file {file}" + (f"; did you mean {near[0]}?" if near else ""))
    current_directory_first()  # it may name functions of modules
    return kind_of_file(file).load(file)


def _of_dialects(value: Any) -> list[Any]:
    """The workflow that an author's value stands for, if it can be started."""
    from perdure.app.dialects import workflows_in

    return [each for each in workflows_in([value]) if each.policy.created == "start"]


def load_all(target: str) -> list[Any]:
    """The flow that is named, or every workflow of the module if it is named alone."""
    if ":" in target:
        return [load(target)[0]]
    if not target:
        raise Stopped("'' names no module; write MODULE or MODULE:FLOW, for example shop or shop:order")
    workflows = list({id(each): each for each in _workflows(module_of(target)).values()}.values())
    if not workflows:
        raise Stopped(f"{target} has no flows; put @perdure.flow above an async def")
    return workflows


def code_of(target: str) -> list[Any]:
    """The workflows of a module, of a file, or of what is named in a module, in whatever dialect."""
    from perdure.app.dialects import workflows_in

    if target.lower().endswith(FILES):
        from perdure.worlds.files import load_manifest

        current_directory_first()
        with redirect_stdout(sys.stderr):
            return workflows_in([load_manifest(target)])
    module, colon, name = target.partition(":")
    if not module:
        return load_all(target)
    with redirect_stdout(sys.stderr):
        found = module_of(module)
        workflows = workflows_in(vars(found).values())
    if not colon:
        return workflows or load_all(target)
    wanted = getattr(getattr(found, name, None), "workflow", None)  # what an author made may stand for a workflow
    names = (wanted, getattr(wanted, "name", None))
    return [each for each in workflows if each.name in names] or load_all(target)


def served_by(target: str) -> tuple[list[Any], list[Any]]:
    """What an engine runs of a module: its workflows in every dialect and its functions; and its handlers. Of the file
    of a definition: that.
    """
    from perdure.app.dialects import workflows_in

    if target.endswith(FILES):
        return [load(target)[0]], []
    if ":" in target:
        functions, handlers = helpers_of(target)
        return [load(target)[0], *functions], handlers
    with redirect_stdout(sys.stderr):
        values = list({id(each): each for each in vars(module_of(target)).values()}.values())
        workflows = [each for each in values if workflows_in([each])]
    if not workflows:
        raise Stopped(f"{target} has no workflows; put @perdure.flow above an async def")
    functions, handlers = helpers_of(target)
    return [*workflows, *functions], handlers


def current_directory_first() -> None:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def helpers_of(target: str) -> tuple[list[Any], list[Any]]:
    """The functions and the handlers that stand in the module of a workflow, for the engine that runs it."""
    if target.endswith(FILES):
        return [], []
    values = vars(module_of(target.partition(":")[0])).values()
    functions = [value for value in values if type(value).__name__ == "UserFunction"]
    return functions, [value for value in values if hasattr(type(value), "dialect")]


def module_of(name: str) -> ModuleType:
    directory = os.getcwd()
    if name.endswith(".py"):
        directory, file = os.path.split(os.path.abspath(name))
        if not os.path.isfile(name):
            raise Stopped(f"there is no file {name}")
        name = file.removesuffix(".py")
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name + ".").startswith(error.name + "."):
            raise Stopped(f"there is no module {error.name!r}{_near_module(error.name)}") from error
        raise _broken(name, error) from error
    except Exception as error:
        raise _broken(name, error) from error
    except SystemExit as error:
        raise Stopped(f"{name} ended the process while it was imported (exit code {error.code})") from error


def _broken(name: str, error: Exception) -> Stopped:
    """The module is there and fails: the place is the deepest line that is neither of the import machinery nor ours."""
    if isinstance(error, SyntaxError):
        place = f"{error.filename}:{error.lineno}"
        return Stopped(f"{name} cannot be imported: {type(error).__name__}: {error.msg} at {place}")
    traced = traceback.extract_tb(error.__traceback__)
    frames = [f for f in traced if not f.filename.startswith(("<frozen", PACKAGE))]
    text = str(error).partition("\n")[0]
    told = not frames or f"{frames[-1].filename}:" in text
    place = "" if told else f" at {frames[-1].filename}:{frames[-1].lineno}"
    return Stopped(f"{name} cannot be imported: {type(error).__name__}: {text}{place}; --debug shows more")


def _near_module(name: str) -> str:
    parent, _, last = name.rpartition(".")
    folder = os.getcwd()
    if parent:
        spec = find_spec(parent)
        folder = next(iter(spec.submodule_search_locations or ()), "") if spec is not None else ""
    names = [entry.removesuffix(".py") for entry in (os.listdir(folder) if os.path.isdir(folder) else ())]
    near = difflib.get_close_matches(last, [entry for entry in names if entry.isidentifier()], n=1)
    meant = f"; did you mean {'.'.join(filter(None, (parent, near[0])))!r}?" if near else ""
    return meant or f" in {os.getcwd()} or among the installed packages"


def _attribute(module: ModuleType, name: str, workflows: dict[str, Any]) -> Any:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            by_name = Workflows(each for each in workflows.values() if each.name == name).newest(name)
            if by_name is not None:
                return by_name
            raise Stopped(_missing(module, found, name, part, workflows))
        found = getattr(found, part)
    return found


def _missing(module: ModuleType, owner: Any, name: str, part: str, workflows: dict[str, Any]) -> str:
    names = list(workflows) if owner is module else []
    near = difflib.get_close_matches(part, names, n=1) or difflib.get_close_matches(part, dir(owner), n=1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    return f"{module.__name__} has no {name!r}{meant}{_choice(module, workflows)}"


def _choice(module: ModuleType, workflows: dict[str, Any]) -> str:
    return f" ({module.__name__} has the workflows {', '.join(sorted(workflows))})" if workflows else ""


def _workflows(module: ModuleType) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if _is_workflow(value)}


def _is_workflow(value: Any) -> bool:
    return hasattr(type(value), "machine") and hasattr(type(value), "encode_plain_input")


def _kind(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, Keyed):
        return f"a {value.policy.noun}"
    return {
        "function": "a plain function",
        "StepFunction": "a step",
        "module": "a module",
        "type": "a class",
    }.get(kind, f"a value of type {kind}")
