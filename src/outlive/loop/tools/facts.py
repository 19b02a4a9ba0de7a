"""What is known of the built-in tools without any of their code, for `decide`. Pure."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

Runs = Literal["parallel", "in_turn"]

RUNS: Mapping[str, Runs] = MappingProxyType(
    {
        "shell": "in_turn",  # one terminal: what one command changes, the next one finds
        "read_file": "parallel",
        "write_file": "in_turn",
        "edit_file": "in_turn",
        "list_files": "parallel",
        "search": "parallel",
        "publish": "in_turn",
        "wait": "in_turn",
        "ask_human": "in_turn",
        "subagent": "parallel",  # each has a context of its own; who shares a machine shares it knowingly
    }
)
"""Parallel ones change nothing here, so their order does not matter. A tool that is not here runs in turn."""
