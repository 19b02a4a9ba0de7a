"""What the demo model answers. Pure: the same conversation, the same answer.

It knows a few things: to make a failing Python test pass (`repair.py`), to look at files, to run a command that stands
between backticks, and what it is that it runs in. To anything else it says what it is.
"""

import re
from collections.abc import Collection, Sequence

from outlive.loop.models.demo.history import Asked, Thought, read_history
from outlive.loop.models.demo.repair import repair
from outlive.loop.models.messages import Message

WHAT_I_AM = (
    "I am Outlive's built-in demo model: a small program, no language model. I know how to make a failing Python test "
    "pass, to list files, and to run a command like `uname -a`."
)
HOW_TO_GET_A_REAL_ONE = (
    "For a real model set ANTHROPIC_API_KEY or OPENAI_API_KEY in the environment that Outlive is started in, or name "
    "one with the message."
)
WHAT_IS_LOST = (
    "Nothing. (The built-in demo model speaks; I am a small program, no language model.) What was said and done is in "
    "a log on disk before anybody is told that it was. Your laptop only follows that log: close it, come back next "
    "week from another device, and you get exactly what you have not seen. I am in a turn of a loop whose worker may "
    "die at any word of this sentence. Then another one takes the turn up from the log, tries the step again, and "
    "everybody who was watching is told to take back the words of the attempt that died, so that nobody reads half an "
    "answer as a whole one. The machine that an agent works in has a life of its own as well: it goes on when you "
    "leave, it sleeps with its memory when nobody needs it, and wakes with its shells as they were. What really "
    "cannot be known after a crash is called lost, and is never done twice in silence."
)
_SHOWN = 600  # characters of an output that are said again

_COMMAND = re.compile(r"`([^`\n]+)`")
_LOST = re.compile(r"\b(lost|lose|laptop|crash\w*|survive\w*|outlive\w*)\b", re.IGNORECASE)
_FILES = re.compile(r"\b(files?|folders?|director(y|ies)|ls|what is (here|there)|workspace)\b", re.IGNORECASE)


def think(messages: Sequence[Message], tools: Collection[str]) -> Thought:
    asked = read_history(messages)
    if asked.is_task:
        thought = repair(asked.done, tools)
        return Thought(f"{_aside(asked)}{_introduction(asked)}{thought.text}", thought.calls)
    return _small(asked, tools)


def _aside(asked: Asked) -> str:
    return "I have read what you said meanwhile, but I can only do one thing at a time. " if asked.aside else ""


def _introduction(asked: Asked) -> str:
    return "" if asked.done else "I am Outlive's built-in demo model: a small program, no language model. "


def _small(asked: Asked, tools: Collection[str]) -> Thought:
    """One call at the most, and a word about it."""
    if asked.done:
        done = asked.done[-1]
        if done.is_error:
            return Thought(f"That did not work: {done.output[:_SHOWN]}")
        return Thought(f"This is what there is:\n\n{done.output[:_SHOWN].rstrip()}")
    command = _COMMAND.search(asked.text)
    if "shell" in tools and (command or _FILES.search(asked.text)):
        line = command[1] if command else "ls -la"
        return Thought(f"I am the built-in demo model. I run `{line}`.", (("shell", {"command": line}),))
    if _LOST.search(asked.text):
        return Thought(WHAT_IS_LOST)
    return Thought(f"{WHAT_I_AM} {HOW_TO_GET_A_REAL_ONE}")
