"""An environment is read from TOML, refused with the name of what is wrong, and keyed by what it is made from."""

import pytest

from outlive.base import InvalidError
from outlive.machine.environment import EnvironmentDefinition, parse_environment

_WHOLE = """
name = "web"
base = "debian"
install = ["apt-get update"]
start = ["python3 -m http.server 8000"]
ports = [8000]
egress = ["mirror.example:80"]
warm = 2
[env]
LANG = "C.UTF-8"
[limits]
memory_mib = 512
"""


def test_a_whole_one_is_read_and_becomes_a_spec() -> None:
    found = parse_environment(_WHOLE)
    spec = found.to_spec()
    assert (spec.base, spec.limits.memory_mib, spec.start, spec.ports) == (
        "debian",
        512,
        ("python3 -m http.server 8000",),
        (8000,),
    )
    assert spec.env == {"LANG": "C.UTF-8"}
    assert found.needs_build


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = ", "TOML"),
        ("base = 'debian'", "name"),
        ("name = 'Web'", "name"),
        ("name = 'a'\nnope = 1", "nope"),
        ("name = 'a'\nports = [0]", "ports"),
        ("name = 'a'\nwarm = 65", "warm"),
        ("name = 'a'\n[limits]\nmemory_mib = 1", "limits.memory_mib"),
        ("name = 'a'\n[env]\n'A=B' = 'x'", "env"),
        ("name = 'a'\nuser = 'toor'", "user"),
    ],
)
def test_what_is_wrong_is_named(text: str, said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        parse_environment(text)


def test_neither_its_name_nor_its_pool_changes_its_digest_and_all_else_does() -> None:
    one = EnvironmentDefinition(name="a")
    assert one.digest() == EnvironmentDefinition(name="b", warm=3).digest()
    others = [
        EnvironmentDefinition(name="a", base="host"),
        EnvironmentDefinition(name="a", install=("true",)),
        EnvironmentDefinition(name="a", start=("true",)),
        EnvironmentDefinition(name="a", env={"A": "b"}),
        EnvironmentDefinition(name="a", user="root"),
        EnvironmentDefinition(name="a", read_only=True),
    ]
    assert len({one.digest(), *(other.digest() for other in others)}) == len(others) + 1


def test_one_without_commands_needs_no_build() -> None:
    assert not EnvironmentDefinition(name="plain").needs_build


@pytest.mark.parametrize(
    "fields",
    [
        {"install": ("",)},
        {"start": ("nul\0",)},
        {"install": ("x" * 65_537,)},
        {"egress": ("no port",)},
        {"name": "f" * 32},
    ],
)
def test_what_no_machine_can_be_made_from_is_refused_before_anything_is_built(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="value_error"):
        EnvironmentDefinition.model_validate({"name": "web", **fields})
