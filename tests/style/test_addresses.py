"""No tracked text names a package registry or a path of somebody's machine.

Packages come from wherever the machine that installs them is configured to take them from. The patterns are put
together from pieces, so that this file passes its own test.
"""

import re

import pytest

from style.tree import ROOT, name_of, text_of, tracked

REGISTRIES = [
    ("pypi", "org"),
    ("pypi", "python", "org"),
    ("pythonhosted", "org"),
    ("npmjs", "org"),
    ("npmjs", "com"),
    ("yarnpkg", "com"),
    ("crates", "io"),
    ("rubygems", "org"),
    ("proxy", "golang", "org"),
    ("conda", "anaconda", "org"),
    ("deb", "debian", "org"),
    ("docker", "io"),
    ("ghcr", "io"),
    ("quay", "io"),
]
REGISTRY = re.compile(r"(?<![\w-])(?:" + "|".join(r"\.".join(parts) for parts in REGISTRIES) + r")\b", re.IGNORECASE)
MACHINE_PATH = re.compile(r"(?<![\w.$}~/\]])/(?:" + "|".join(("work", "root", "home")) + r")/")
ANY_ADDRESS = re.compile(r"\w+:/" + r"/|--(?:extra-)?index-url|--find-links|@ file")


def _found(pattern: re.Pattern[str]) -> dict[str, list[str]]:
    texts = ((name_of(path), text_of(path)) for path in tracked())
    return {name: found for name, text in texts if text and (found := pattern.findall(text))}


def test_no_text_names_a_registry() -> None:
    assert _found(REGISTRY) == {}


def test_no_text_names_a_path_of_a_machine() -> None:
    assert _found(MACHINE_PATH) == {}


def test_lock_files_have_hashes_and_no_address_at_all() -> None:
    locks = sorted((ROOT / "requirements").glob("*.txt"))
    assert locks
    for path in locks:
        text = path.read_text()
        assert "--hash=sha256:" in text, path
        assert ANY_ADDRESS.findall(text) == [], path


@pytest.mark.parametrize("parts", REGISTRIES, ids=" ".join)
def test_the_address_of_a_registry_is_recognised(parts: tuple[str, ...]) -> None:
    assert REGISTRY.search("https:" + "//files." + ".".join(parts) + "/simple")


def test_a_path_of_a_machine_is_recognised_and_others_are_not() -> None:
    assert MACHINE_PATH.search("see " + "/" + "home" + "/somebody/project")
    assert not MACHINE_PATH.search("$HOME" + "/work" + "/x ../" + "root" + "/x /workspace/x ~/" + "work" + "/")
