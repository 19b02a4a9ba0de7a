"""An installed package with all that it needs, as an archive: it gets into a machine without a network."""

import io
import re
import tarfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path


def packed(name: str) -> bytes:
    """What is installed here of a distribution and its requirements, without their scripts."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for each in _with_requirements(name):
            for file in each.files or ():
                path = Path(str(file.locate()))
                if ".." not in file.parts and path.is_file() and path.suffix != ".pyc":
                    archive.add(path, str(file))
    return buffer.getvalue()


def _with_requirements(name: str) -> list[Distribution]:
    found: dict[str, Distribution] = {}
    waiting = [name]
    while waiting:
        wanted = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if wanted in found:
            continue
        try:
            found[wanted] = distribution(wanted)
        except PackageNotFoundError:  # for another platform, or an extra that nobody asked for
            continue
        requires = [each for each in found[wanted].requires or () if not re.search(r"\bextra\s*==", each)]
        # One extra is needed: `pyjwt[crypto]`.
        waiting += [re.split(r"[^A-Za-z0-9._-]", each, maxsplit=1)[0] for each in requires]
    return [*found.values()]
