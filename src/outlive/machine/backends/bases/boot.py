"""The first lines that run in a machine: they start the guest, without looking for its modules one by one.

Copied into the guest's runtime; never run on the host. Every module that the guest needs lies, compiled, in one
file beside this one. Finding and reading each on its own would take a sandbox longer than all the rest of a start.
What is not in there is found in the usual way.
"""

import gc
import marshal
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import ExtensionFileLoader

TYPE_CHECKING = False  # `typing` would have to be looked for
if TYPE_CHECKING:
    from types import CodeType, ModuleType

PLACE = "/.outlive"
BUNDLE = f"{PLACE}/bundle"
MAIN = "outlive.guest.__main__"


class Bundle:
    """Finds and runs the modules of the bundle."""

    def __init__(self, sources: dict[str, tuple[bool, str, bytes]], extensions: dict[str, str]) -> None:
        self.sources = sources
        self.extensions = extensions

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name in self.extensions:
            file = self.extensions[name]
            spec = ModuleSpec(name, ExtensionFileLoader(name, file), origin=file)
            spec.has_location = True
            return spec
        if name not in self.sources:
            return None
        is_package, file, _ = self.sources[name]
        spec = ModuleSpec(name, self, origin=file, is_package=is_package)  # type: ignore[arg-type]  # a loader in deed
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations = [file.rpartition("/")[0]]
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: "ModuleType") -> None:
        exec(self.code(module.__name__), module.__dict__)  # noqa: S102

    def code(self, name: str) -> "CodeType":
        code: CodeType = marshal.loads(self.sources[name][2])  # noqa: S302
        return code


def start() -> "CodeType":
    with open(BUNDLE, "rb") as file:
        sources, extensions, first = marshal.loads(file.read())  # noqa: S302
    bundle = Bundle(sources, extensions)
    sys.meta_path.insert(2, bundle)  # after what is built in and frozen
    sys.path.insert(0, f"{PLACE}/app")
    gc.disable()  # none of what the modules make is garbage
    for name in first:
        __import__(name)
    gc.freeze()
    gc.enable()
    globals()["__package__"] = "outlive.guest"
    globals()["__file__"] = bundle.sources[MAIN][1]
    return bundle.code(MAIN)


if __name__ == "__main__":
    exec(start())  # noqa: S102
