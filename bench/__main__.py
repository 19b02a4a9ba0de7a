"""`python -m bench`: runs the benchmarks, shows what they do and find, and writes tables and plots."""

import argparse
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import anyio
from rich.console import Console

from bench import (
    appends,
    appends_postgres,
    catch_up,
    fan_out,
    idle,
    latency,
    loop_batch,
    loop_first_delta,
    loop_subagents,
    loop_throughput,
    loop_turn,
    loop_waiting,
    machines_checkpoint,
    machines_claim,
    machines_exec,
    machines_idle,
    machines_start,
    machines_wake,
    storage,
    terminals_attach,
    terminals_echo,
    terminals_memory,
    terminals_throughput,
)
from bench.facts import Facts, gather_facts
from bench.house import forget_environment
from bench.measure import Say, Section
from bench.plots import draw
from bench.report import RESULTS, read_sections, show, to_json, to_markdown
from bench.scale import FULL, QUICK, Scale
from bench.workshop import Workshop, open_workshop, raise_descriptor_limit


class Bench(NamedTuple):
    title: str
    what: str
    run: Callable[[Workshop, Scale, Say], Awaitable[Section]]


BENCHES = {
    module.NAME: Bench(module.TITLE, module.WHAT, module.run)
    for module in (
        *(appends, appends_postgres, catch_up, fan_out, latency, storage, idle),
        *(machines_start, machines_wake, machines_claim, machines_exec, machines_checkpoint, machines_idle),
        *(terminals_echo, terminals_attach, terminals_throughput, terminals_memory),
        *(loop_turn, loop_first_delta, loop_throughput, loop_waiting, loop_subagents, loop_batch),
    )
}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; writes results only to --out")
    parser.add_argument("--only", action="append", choices=list(BENCHES), metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("--rounds", type=int, help="rounds of each contender")
    parser.add_argument("--out", type=Path, help="folder for tables and plots (bench/results)")
    return parser.parse_args(arguments)


async def measure(names: list[str], scale: Scale, console: Console) -> tuple[Facts, list[Section]]:
    sections = []
    with open_workshop() as workshop:
        facts = gather_facts(workshop.folder, is_quick=scale.is_quick)
        console.print(facts.line, highlight=False)
    for name in names:
        bench = BENCHES[name]
        console.print(f"\n[bold]{bench.title}[/bold] ({name})")
        console.print(bench.what.format(scale=scale), highlight=False, style="dim")
        with open_workshop() as workshop, console.status(name) as status:

            def say(text: str, name: str = name) -> None:
                status.update(f"{name}: {text}")
                if not console.is_terminal:
                    console.print(f"  {name}: {text}", highlight=False)

            section = await bench.run(workshop, scale, say)
        show(console, section)
        sections.append(section)
    return facts, sections


def with_earlier(folder: Path, sections: list[Section]) -> list[Section]:
    """These, and what earlier runs found of the others: each benchmark is compared with itself alone."""
    found = {section.name: section for section in (*read_sections(folder), *sections)}
    for section in found.values():
        section.what = section.what or BENCHES[section.name].what.format(scale=FULL)
    return [found[name] for name in BENCHES if name in found]


def write(folder: Path, facts: Facts, sections: list[Section]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    plots = draw(folder, sections)
    (folder / "results.md").write_text(to_markdown(facts, sections, plots))
    (folder / "results.json").write_text(to_json(facts, sections))


def main() -> int:
    options = parse(sys.argv[1:])
    console = Console(width=None if sys.stdout.isatty() else 120)
    forget_environment()
    raise_descriptor_limit(8_192)
    scale = QUICK if options.quick else FULL
    if options.rounds:
        scale = scale.with_rounds(options.rounds)
    names = options.only or list(BENCHES)
    try:
        facts, sections = anyio.run(measure, names, scale, console, backend_options={"use_uvloop": True})
    except KeyboardInterrupt:
        console.print("\nStopped; nothing was left behind.")
        return 130
    folder = options.out or (None if options.quick else RESULTS)
    if folder is not None:
        write(folder, facts, sections if options.quick else with_earlier(folder, sections))
        console.print(f"\nTables and plots are in {folder}.")
    for verdict in ("missed", "unclear"):
        found = [f"{s.title}: {ratio.name}" for s in sections for ratio in s.ratios if ratio.verdict == verdict]
        if found and not options.quick:
            console.print(f"[bold]{verdict.capitalize()}:[/bold] {'; '.join(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
