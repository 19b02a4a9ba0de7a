"""The layers hold, and each contract of `.importlinter` can fail: a violation planted in a copy breaks it."""

import configparser
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from style.tree import PACKAGE, ROOT

CONFIG = ROOT / ".importlinter"


class Violation(NamedTuple):
    contract: str
    file: str
    line: str


VIOLATIONS = [
    Violation("layers", "base/clock.py", "import outlive.storage"),
    Violation("layers", "storage/__init__.py", "import outlive.governance"),
    Violation("layers", "governance/__init__.py", "import outlive.conversation"),
    Violation("layers", "conversation/log.py", "import outlive.api"),
    Violation("layers", "conversation/log.py", "import outlive.loop"),
    Violation("layers", "loop/__init__.py", "import outlive.api"),
    Violation("layers", "api/__init__.py", "import outlive.wiring"),
    Violation("layers", "wiring/__init__.py", "import outlive.processes"),
    Violation("layers", "processes/__init__.py", "import outlive.cli"),
    Violation("layers", "utils/__init__.py", "'''A folder that no layer is named for.'''"),
    Violation("backends", "conversation/feed.py", "import outlive.conversation.backends"),
    Violation("backends", "api/__init__.py", "import outlive.conversation.backends"),
    Violation("pure", "conversation/append.py", "import time"),
    Violation("pure", "processes/restart.py", "import time"),
    Violation("pure", "loop/decide.py", "import time"),
    Violation("pure", "loop/context.py", "from outlive.storage import objects"),
    Violation("pure", "conversation/follower.py", "import asyncio"),
    Violation("pure", "conversation/events.py", "from anyio import sleep"),
    Violation("pure", "base/errors.py", "import httpx"),  # reached through base
    Violation("pure", "conversation/log.py", "import sqlite3"),  # reached through a port
    Violation("sdk", "client/__init__.py", "from outlive.conversation import events"),
    Violation("sdk", "client/__init__.py", "def late() -> None:\n    import outlive.wiring"),
    Violation("face", "wiring/__init__.py", "import outlive.client"),
    Violation("vendors", "conversation/conversations.py", "from sqlite3 import Connection"),
    Violation("vendors", "api/__init__.py", "import asyncpg"),
    Violation("web", "conversation/conversations.py", "from starlette.requests import Request"),
    Violation("models", "loop/__init__.py", "import anthropic"),
    Violation("models", "api/__init__.py", "from openai import AsyncOpenAI"),
    Violation("mcp", "loop/tools/shelf.py", "import mcp"),
    Violation("http", "loop/tools/shelf.py", "import httpx2"),
    Violation("temporal", "machine/keeper.py", "from temporalio.client import Client"),
    Violation("temporal", "api/__init__.py", "import temporalio"),
    Violation("deterministic", "machine/workflow.py", "import outlive.machine.activities"),
    Violation("deterministic", "machine/steps.py", "import random"),  # reached through what it passes on
    Violation("pure", "guest/flow.py", "import time"),
    Violation("guest", "guest/loop.py", "import anyio"),
    Violation("guest", "guest/wire.py", "from outlive.base import errors"),
    Violation("guest", "guest/daemon.py", "import asyncio"),
]


def lint_imports(config: Path, folder: Path, *contracts: str) -> subprocess.CompletedProcess[str]:
    """Run the linter on the `outlive` that lies in `folder`: the working directory comes first on its path."""
    limits = [word for contract in contracts for word in ("--contract", contract)]
    return subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache", "--no-logo", "--config", config, *limits],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(PACKAGE, tmp_path / "outlive", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def contract_ids() -> dict[str, str]:
    config = configparser.ConfigParser()
    config.read(CONFIG)
    prefix = "importlinter:contract:"
    return {name.removeprefix(prefix): config[name]["name"] for name in config.sections() if name.startswith(prefix)}


def test_an_untouched_copy_keeps_every_contract(copy: Path) -> None:
    result = lint_imports(CONFIG, copy)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{len(contract_ids())} kept, 0 broken" in result.stdout


@pytest.mark.parametrize("violation", VIOLATIONS, ids=lambda violation: f"{violation.contract}:{violation.file}")
def test_a_violation_breaks_its_contract(copy: Path, violation: Violation) -> None:
    file = copy / "outlive" / violation.file
    file.parent.mkdir(exist_ok=True)
    with file.open("a") as source:
        source.write(f"\n{violation.line}\n")
    result = lint_imports(CONFIG, copy, violation.contract)
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{contract_ids()[violation.contract]} BROKEN" in result.stdout, result.stdout + result.stderr


def test_every_contract_has_a_violation_that_breaks_it() -> None:
    assert {violation.contract for violation in VIOLATIONS} == set(contract_ids())
