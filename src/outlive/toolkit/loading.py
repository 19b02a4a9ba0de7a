"""Finding tools by the names that a person gives: `module` for all that it has, `module:name` for one, or a list."""

import importlib
import traceback
from collections.abc import Iterable, Sequence

from outlive.base import InvalidError
from outlive.toolkit.declared import DeclaredTool, declaration_of, is_tool

TOOLS_LIMIT = 100  # of one worker


def load_tools(names: Sequence[str]) -> tuple[DeclaredTool, ...]:
    """All tools under `names`, each once. Imports the modules. `tools.*` (invalid) says what is wrong."""
    functions: dict[int, object] = {}
    for name in names:
        for each in _find(name):
            functions.setdefault(id(each), each)
    declared = tuple(declaration_of(each) for each in functions.values())  # type: ignore[arg-type]
    seen: dict[str, DeclaredTool] = {}
    for tool in declared:
        if (other := seen.setdefault(tool.name, tool)) is not tool:
            places = " and ".join(f"{each.function.__module__}.{each.function.__qualname__}" for each in (other, tool))
            raise InvalidError("tools.doubled", f"Two tools are called {tool.name!r}: {places}. Rename one of them.")
    if len(declared) > TOOLS_LIMIT:
        raise InvalidError("tools.too_many", f"A worker has at most {TOOLS_LIMIT} tools; these are {len(declared)}.")
    return declared


def _find(name: str) -> Iterable[object]:
    path, _, attribute = name.partition(":")
    module = _import(path)
    if not attribute:
        found = [each for each in vars(module).values() if is_tool(each)]
        if not found:
            raise InvalidError("tools.none", f"The module {path!r} has no tools: mark its functions with @tool.")
        return found
    if not hasattr(module, attribute):
        raise InvalidError("tools.none", f"The module {path!r} has nothing that is called {attribute!r}.")
    given = getattr(module, attribute)
    listed = [given] if is_tool(given) else list(given) if isinstance(given, list | tuple) else []
    if not listed or not all(is_tool(each) for each in listed):
        raise InvalidError("tools.none", f"{name!r} is neither a tool (a function with @tool) nor a list of them.")
    return listed


def _import(path: str) -> object:
    """A module of somebody else's, which may fail with whatever it likes."""
    try:
        return importlib.import_module(path)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1:]
        where = f" ({last[0].filename}, line {last[0].lineno})" if last else ""
        raise InvalidError(
            "tools.import", f"The module {path!r} cannot be imported: {type(error).__name__}: {error}{where}"
        ) from error
