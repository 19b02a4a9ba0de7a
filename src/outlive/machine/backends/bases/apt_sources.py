"""Where this host takes its Debian packages from: mirror, keys and options, in both formats that apt reads.

Standard library only, and runnable as a program: set-up asks it, before anything is installed, for the sources of
another suite on the same mirror (`apt_sources.py bookworm-backports`). No mirror is named in this repository.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_DEBIAN = re.compile(r"/debian(-security)?(\.list)?/?$")
_ONE_LINE = re.compile(r"deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>.+)")
_OPTION_NAMES = {"arch": "Architectures", "lang": "Languages", "target": "Targets", "pdiffs": "PDiffs"}
_OPERATORS = {"+": "-Add", "-": "-Remove", "": ""}
_HANDLED = {"Types", "Uris", "Suites", "Components", "Enabled"}


class Source(NamedTuple):
    """One entry of apt's sources; all the fields that we do not look at are in `options`, as they were."""

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    options: tuple[tuple[str, str], ...]

    def with_suites(self, *suites: str) -> "Source":
        return self._replace(suites=suites, components=("main",))

    def as_deb822(self) -> str:
        fields = [
            ("Types", "deb"),
            ("URIs", " ".join(self.uris)),
            ("Suites", " ".join(self.suites)),
            ("Components", " ".join(self.components)),
            *self.options,
        ]
        return "".join(f"{name}: {value}\n" for name, value in fields)

    @property
    def is_debian(self) -> bool:
        """Others use Debian's names for suites, too: its own mirrors are known by their paths."""
        return any(_DEBIAN.search(uri) for uri in self.uris)


def read_sources(apt: Path = Path("/etc/apt")) -> list[Source]:
    """Every enabled source of binary packages."""
    found: list[Source] = []
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]:
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.suffix == ".sources":
            found += parse_deb822(text)
        elif path.suffix == ".list":
            found += parse_one_line(text)
    return [source._replace(uris=tuple(_resolved(source.uris))) for source in found]


def parse_deb822(text: str) -> list[Source]:
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    stanzas = re.split(r"\n\s*\n", "\n".join(lines))
    return [source for stanza in stanzas if (source := _of_fields(_fields(stanza))) is not None]


def _fields(stanza: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    name = ""
    for line in stanza.splitlines():
        if line[:1].isspace() and name:  # a key may be written out over many lines
            fields[name] += f"\n{line}"
        elif ":" in line:
            name, _, value = line.partition(":")
            name = "-".join(word.capitalize() for word in name.strip().split("-"))
            fields[name] = value.strip()
    return fields


def _of_fields(fields: dict[str, str]) -> Source | None:
    is_enabled = fields.get("Enabled", "yes").lower() not in ("no", "false", "0")
    if not is_enabled or "deb" not in fields.get("Types", "").split() or "Uris" not in fields:
        return None
    return Source(
        uris=tuple(fields["Uris"].split()),
        suites=tuple(fields.get("Suites", "").split()),
        components=tuple(fields.get("Components", "").split()),
        options=tuple((name, value) for name, value in fields.items() if name not in _HANDLED),
    )


def parse_one_line(text: str) -> list[Source]:
    matches = (_ONE_LINE.fullmatch(line.partition("#")[0].strip()) for line in text.splitlines())
    return [
        Source((match["uri"],), (match["suite"],), tuple(match["components"].split()), _options(match["options"] or ""))
        for match in matches
        if match
    ]


def _options(text: str) -> tuple[tuple[str, str], ...]:
    options = []
    for name, operator, value in re.findall(r"([\w-]+?)([+-]?)=(\S+)", text):
        long = _OPTION_NAMES.get(name) or "-".join(word.capitalize() for word in name.split("-"))
        options.append((long + _OPERATORS[operator], value.replace(",", " ")))
    return tuple(options)


def _resolved(uris: Iterable[str]) -> Iterable[str]:
    """A list of mirrors in a file of this host means nothing elsewhere: its first mirror does."""
    for uri in uris:
        path = Path(uri.removeprefix("mirror+file:"))
        if not uri.startswith("mirror+file:") or not path.is_file():
            yield uri
            continue
        lines = (line.split() for line in path.read_text().splitlines() if not line.startswith("#"))
        yield next((words[0] for words in lines if words), uri)


def sources_of(codename: str, sources: Iterable[Source]) -> list[Source]:
    """Debian's own sources for a release: the release itself first, then its updates and security fixes."""
    suites = (codename, f"{codename}-updates", f"{codename}-security")
    debian = [source for source in sources if source.is_debian and "main" in source.components]
    if not any(codename in source.suites for source in debian):
        return []
    return [
        source.with_suites(suite)
        for suite in suites
        for source in [source for source in debian if suite in source.suites][:1]
    ]


def main(suite: str) -> int:
    """Print the source of `suite` (such as `bookworm-backports`), made from that of its release."""
    codename = suite.partition("-")[0]
    found = sources_of(codename, read_sources())
    if not found:
        sys.stderr.write(f"no source in /etc/apt names a Debian mirror for {codename}\n")
        return 1
    sys.stdout.write(found[0].with_suites(suite).as_deb822())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
