"""The terminal of a person: a real emulator that does all a program asks of it. It answers, copies, notifies."""

from typing import Any, NamedTuple

from pyghostty import GhosttyError, Terminal, ffi, lib

_KNOWN_MODES = range(1, 2100)


class State(NamedTuple):
    """What outlasts the text on the screen."""

    modes: tuple[int, ...]  # that are set
    keyboard: int
    colours: tuple[bytes, ...]
    is_alternate: bool
    title: str
    folder: str


class OperatorTerminal:
    def __init__(self, cols: int = 80, rows: int = 24) -> None:
        self.size = (cols, rows)
        self.effects: list[str] = []  # beyond the screen
        self.answers: list[bytes] = []
        self._terminal = Terminal(cols, rows, scrollback=1000, fg=(200, 200, 200), bg=(0, 0, 0))
        self._terminal.on_reply(self.answers.append)
        self._kept: list[Any] = []
        self._enquiry = ffi.new("char[]", b"answerback")
        self._watch("CLIPBOARD_WRITE", "void(GhosttyTerminal, void*, const GhosttyClipboardWrite*)")
        self._watch("CLIPBOARD_READ", "void(GhosttyTerminal, void*, const GhosttyClipboardRead*)")
        self._watch("DESKTOP_NOTIFICATION", "void(GhosttyTerminal, void*, const GhosttyTerminalDesktopNotification*)")
        self._watch("PWD_CHANGED", "void(GhosttyTerminal, void*)")
        self._watch("TITLE_CHANGED", "void(GhosttyTerminal, void*)")
        self._answer_enquiries()
        lib.ghostty_terminal_set(self._terminal._t[0], lib.GHOSTTY_TERMINAL_OPT_TITLE_REPORT, ffi.new("bool*", True))
        self._modes = [mode for mode in _KNOWN_MODES if self._knows(mode)]

    def close(self) -> None:
        self._terminal.close()

    def _watch(self, name: str, signature: str) -> None:
        callback = ffi.callback(signature, lambda *_: self.effects.append(name.lower()))
        self._kept.append(callback)
        option = getattr(lib, f"GHOSTTY_TERMINAL_OPT_{name}")
        assert lib.ghostty_terminal_set(self._terminal._t[0], option, callback) == lib.GHOSTTY_SUCCESS

    def _answer_enquiries(self) -> None:
        def answer(*_: Any) -> Any:
            told = ffi.new("GhosttyString*")
            told.ptr, told.len = ffi.cast("uint8_t*", self._enquiry), 10
            return told[0]

        callback = ffi.callback("GhosttyString(GhosttyTerminal, void*)", answer)
        self._kept.append(callback)
        option = lib.GHOSTTY_TERMINAL_OPT_ENQUIRY
        assert lib.ghostty_terminal_set(self._terminal._t[0], option, callback) == lib.GHOSTTY_SUCCESS

    def _knows(self, mode: int) -> bool:
        try:
            self._terminal.mode(mode)
        except GhosttyError:
            return False
        return True

    def feed(self, data: bytes) -> None:
        self._terminal.feed(data)

    @property
    def text(self) -> str:
        text: str = self._terminal.text()
        return text

    @property
    def scrollback(self) -> int:
        rows: int = self._terminal.get("scrollback_rows", "size_t")
        return rows

    @property
    def state(self) -> State:
        colours = tuple(
            bytes(ffi.buffer(ffi.new("GhosttyColorRgb*", self._terminal.get(name, "GhosttyColorRgb"))))
            for name in ("color_foreground", "color_background")
        )
        return State(
            tuple(mode for mode in self._modes if self._terminal.mode(mode)),
            self._terminal.get("kitty_keyboard_flags", "uint8_t"),
            colours,
            self._terminal.get("active_screen", "int") != 0,
            self._string("title"),
            self._string("pwd"),
        )

    def _string(self, name: str) -> str:
        found = self._terminal.get(name, "GhosttyString")
        return ffi.buffer(found.ptr, found.len)[:].decode() if found.len else ""
