"""A shell that is operated through its terminal: whether it can be typed to, what to type, and when it is done. Pure.

Rule 1: all of it is read from the shell's own marks (`guest/shell.bash`, `marks`), never from what a prompt looks like.
Rule 2: a prompt that is drawn again has the same name; only another prompt of the same shell ends a command. So neither
        a redrawn line nor marks of another shell in the output are taken for an end.
Rule 3: what was never started is told apart from what ended: the shell did not accept the line.
Rule 4: nothing is added to a line that somebody has begun. What was typed last says whether that was entered
        (`decide_line`); until the shell has read all of it and waits for more, nothing is decided.
"""

import hashlib
from typing import Any, Literal, NamedTuple

from outlive.base import ConflictError, EffectId, InvalidError, TerminalId
from outlive.machine.status import Effect
from outlive.machine.terminal.journal import Input
from outlive.machine.terminal.marks import FoundMark, Marks
from outlive.machine.terminal.plain import plain_text

INTERRUPT = b"\x03"
LOOK_BACK = 256 * 1024  # bytes before the end that are looked through for the newest prompt
_PASTE_ON, _PASTE_OFF = b"\x1b[?2004h", b"\x1b[?2004l"
_PASTE_BEGIN, _PASTE_END = b"\x1b[200~", b"\x1b[201~"
_DIGEST = "terminal"
_LAST_KEYS = (b"\r", b"\n", b"\x03", b"\x04")  # Enter, Ctrl-C, Ctrl-D: no line goes on after these


# ── the request, as the journal of effects knows it ──


def digest_of_run(terminal: TerminalId, command: str) -> str:
    """What an effect id stands for, and in which terminal: whoever finds the effect knows where to look."""
    return f"{_DIGEST}:{terminal}:{hashlib.sha256(command.encode(errors='surrogatepass')).hexdigest()}"


def terminal_of(effect: Effect) -> TerminalId | None:
    """The terminal that it was typed into; None for one that the guest runs by itself."""
    kind, _, rest = effect.digest.partition(":")
    return TerminalId(rest.partition(":")[0]) if kind == _DIGEST else None


# ── before it is typed ──


Phase = Literal["unknown", "prompt", "running"]


class Shell(NamedTuple):
    """What the newest marks say of the shell."""

    phase: Phase = "unknown"
    prompt: str = ""  # the newest one's name
    prompt_at: int = 0  # the offset where that one was first shown
    ready_at: int = 0  # the offset where the newest prompt ended
    is_untouched: bool = False  # nothing is shown after the prompt
    takes_paste: bool = False


def read_shell(offset: int, data: bytes) -> Shell:
    """From the newest output, which begins at `offset`."""
    phase: Phase = "unknown"
    prompt, prompt_at, ready_at = "", offset, offset
    begun_at: int | None = None
    for mark in Marks().feed(offset, data):
        if mark.kind == "prompt_end":
            if mark.prompt != prompt or not prompt:  # one without a name is another one each time
                prompt_at = mark.start if begun_at is None else begun_at
            phase, prompt, ready_at = "prompt", mark.prompt, mark.end
        elif mark.kind == "prompt":
            phase, begun_at = "unknown", mark.start  # it is being written
        elif mark.kind == "started":
            phase = "running"
    is_untouched = phase == "prompt" and not plain_text(data[ready_at - offset :])
    takes_paste = data.rfind(_PASTE_ON) > data.rfind(_PASTE_OFF)
    return Shell(phase, prompt, prompt_at, ready_at, is_untouched, takes_paste)


def decide_line(
    shell: Shell, last: Input | None, *, is_waiting: bool, is_first: bool = False, is_given_up: bool = False
) -> Literal["wait", "type", "give_up"]:
    """What to do with the line that the shell has now. Pure.

    Nobody has begun it if what was typed last ended a line before this prompt was shown, and nothing is shown since
    (what was typed ahead would be) or the last that was typed is how we gave up the line before. Else it is somebody's,
    also if it looks empty: not every key shows.

    `last`: None if it is not known, or if `is_first` and nothing was typed ever. `is_waiting`: the shell has read all
    that was typed, and waits for more.
    """
    if shell.phase != "prompt" or not is_waiting:
        return "wait"
    is_ended = last is not None and last.data.endswith(_LAST_KEYS) and last.offset <= shell.prompt_at
    is_free = (is_ended and (shell.is_untouched or is_given_up)) or (is_first and shell.is_untouched)
    return "type" if is_free else "give_up"


def keys_of(command: str, shell: Shell) -> bytes:
    """What to type for it. Several lines, or tabs, are pasted: so what the first line starts does not read the rest."""
    if any(ord(letter) < 0x20 and letter not in "\n\t" for letter in command) or "\x7f" in command:
        raise InvalidError("terminal.bad_command", "A command that is typed holds no control characters.")
    text = command.strip("\n").encode(errors="surrogateescape")
    if not text.strip():
        raise InvalidError("terminal.bad_command", "There is nothing to type: the command is empty.")
    if b"\n" not in text and b"\t" not in text:
        return text + b"\r"
    if not shell.takes_paste:
        raise ConflictError("terminal.no_paste", "The shell in this terminal takes one line at a time, without tabs.")
    return _PASTE_BEGIN + text + _PASTE_END + b"\r"


def busy(running: str | None) -> ConflictError:
    what = f"{running[:200]!r} runs" if running else "Something runs"
    return ConflictError("terminal.busy", f"{what} in this terminal; wait for its end, interrupt it, or open another.")


def no_prompt(within_s: float) -> ConflictError:
    message = f"No shell in this terminal has marked a prompt within {within_s:g} s; only an interactive bash does."
    return ConflictError("terminal.no_prompt", message)


def line_not_free(last: Input | None, unread: int | None) -> ConflictError:
    """For a shell that does not read, or does not give up the line that somebody has begun."""
    who = "somebody" if last is None else repr(last.operator.name)
    keys = f", and {unread:,} bytes are not read yet" if unread else ""
    message = (
        f"The shell in this terminal has no free line: {who} typed there last{keys}. Nothing was typed; look at the "
        "terminal, wait, or use another."
    )
    facts: dict[str, Any] = {"unread": unread}
    if last is not None:
        facts |= {"operator": last.operator.id, "operator_name": last.operator.name}
    return ConflictError("terminal.line_not_free", message, **facts)


# ── after it was typed ──


class Course:
    """How far a command has come that was typed at the prompt `prompt`, when the output ended at `typed_at`."""

    def __init__(self, effect: EffectId, prompt: str, typed_at: int) -> None:
        self.effect = effect
        self.typed_at = typed_at
        self.phase: Literal["typed", "running", "over"] = "typed"
        self.output_start = typed_at
        self.output_end: int | None = None
        self.exit_code: int | None = None
        self.is_accepted = False  # the shell has carried it out
        self._prompt = prompt

    def take(self, marks: list[FoundMark]) -> None:
        for mark in marks:
            if mark.start >= self.typed_at and self.phase != "over":
                self._take(mark)

    def _take(self, mark: FoundMark) -> None:
        if mark.kind == "started" and self.phase == "typed":
            self.phase, self.is_accepted = "running", True
            self.output_start = mark.end
        elif mark.kind == "ended" and self._is_end(mark.prompt):
            self.phase = "over"
            self.output_end = mark.start
            self.exit_code = mark.exit_code

    def _is_end(self, prompt: str) -> bool:
        is_ours = _shell_in(prompt) == _shell_in(self._prompt)
        return is_ours and (self.phase == "running" or prompt != self._prompt)


def _shell_in(prompt: str) -> str:
    """Prompts are numbered within their shell."""
    return prompt.rpartition(".")[0]
