"""`outlive base`: the filesystems that machines start from, on this host."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli.output import Json, print_json

if TYPE_CHECKING:
    from outlive.machine.base import Base

_MIB = 2**20

Cache = Annotated[
    Path | None,
    typer.Option("--cache", help="Folder that bases are kept in. Default: `bases` in the setting machines.cache."),
]


def add_commands(app: typer.Typer) -> None:
    group = typer.Typer(
        help="The filesystems that machines start from, on this host. Needs root.", rich_markup_mode=None
    )
    group.command("list")(list_)
    group.command("ensure")(ensure)
    group.command("remove")(remove)
    app.add_typer(group, name="base")


def list_(cache: Cache = None, json: Json = False) -> None:
    """Show the bases that are there.

    \b
    Examples:
      outlive base list
      outlive base list --json
    """
    from outlive.wiring.bases import find_cache, list_bases

    found = list_bases(find_cache(cache)[0])
    if json:
        items = [_facts(base) | {"reference": r.reference, "entries": r.entries, "bytes": r.bytes} for base, r in found]
        print_json({"items": items})
        return
    if not found:
        print("There are no bases yet. Make the usual one with: outlive base ensure")
    for base, record in found:
        print(f"{base.key}  {record.bytes / _MIB:7.0f} MiB  {record.reference}")


def ensure(
    reference: Annotated[str, typer.Argument(metavar="REF", help="What to make the base from.")] = "debian",
    cache: Cache = None,
    json: Json = False,
) -> None:
    """Make a base, and what the guest needs to run on it, unless both are there. Prints the key of the base.

    \b
    REF is one of:
      debian               Debian with a developer's tools, from this host's own mirror
      debian:nodejs,npm    the same with more packages
      host                 this host's /usr, with nothing of /root, /home and /var, and little of /etc
      dir:/path            a copy of a folder
      tar:/path            a tar (plain, gzip, xz, bzip2 or Zstandard)
      oci:/path#NAME       an OCI image layout, or what `docker save` wrote; #NAME if it holds several images

    \b
    Examples:
      outlive base ensure
      outlive base ensure debian:nodejs
      docker save python:3.13 -o /srv/python.tar && outlive base ensure oci:/srv/python.tar
    """
    from outlive.wiring.bases import ensure_base, ensure_runtime, find_cache

    bases, runtimes = find_cache(cache)
    runtime = ensure_runtime(runtimes, say=_say)
    base = ensure_base(reference, bases, say=_say)
    if json:
        print_json(_facts(base) | {"runtime": runtime.key})
    else:
        print(base.key)


def remove(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Key of the base, as `outlive base list` shows it.")],
    cache: Cache = None,
    json: Json = False,
) -> None:
    """Remove a base. Refused while a machine on this host runs on it.

    A hibernated machine needs its base to wake: remove only what no machine was made from.

    \b
    Example:
      outlive base remove d8e06d96f00a3ba30635af0c0d511b8e
    """
    from outlive.wiring.bases import find_cache, remove_base

    remove_base(key, find_cache(cache)[0], say=_say)
    if json:
        print_json({"removed": key})


def _facts(base: "Base") -> dict[str, object]:
    return {
        "key": base.key,
        "kind": base.kind,
        "fingerprint": base.fingerprint,
        "is_immutable": base.is_immutable,
        "layers": [str(layer) for layer in base.layers],
        "env": dict(base.env),
    }


def _say(line: str) -> None:
    """How it goes on: to stderr, so that stdout has the answer alone."""
    print(line, file=sys.stderr, flush=True)
