"""What programs print into terminals: sessions like recorded ones, pieces that output is made of, hostile output."""

import re
from collections.abc import Callable

_HOME_AND_CLEAR = b"\x1b[H\x1b[2J"


def _colored_listing() -> bytes:
    names = [b"\x1b[01;34mdir%d\x1b[0m" % i if i % 3 else b"\x1b[01;32mrun%d.sh\x1b[0m" % i for i in range(24)]
    return b"$ ls --color\r\n" + b"".join(b"  ".join(names[i : i + 4]) + b"\r\n" for i in range(0, 24, 4)) + b"$ "


def _shell_with_marks() -> bytes:
    prompt = b"\x1b]133;A\x07\x1b[?2004hada@m:~$ \x1b]133;B\x07"
    run = b"make %d\r\n\x1b[?2004l\r\x1b]133;C\x07built %d\r\n\x1b]133;D;0\x07"
    return b"\x1b]0;ada@m: ~\x07" + b"".join(prompt + run % (i, i) for i in range(9)) + prompt


def _editor() -> bytes:
    lines = b"".join(
        b"\x1b[%d;1H\x1b[38;5;130m%3d \x1b[mline \x1b[1m%d\x1b[22m of text" % (i, i, i) for i in range(1, 8)
    )
    status = b"\x1b[9;1H\x1b[7m\x1b[Kfile.txt [+]\x1b[27m\x1b[10;1H-- INSERT --"
    scrolled = b"\x1b[1;8r\x1b[8;1H\n\n\x1b[8;1Hscrolled in\x1b[r\x1b[2;5H\x1b[1L\x1b[2;1Hinserted"
    begin = b"$ vim file.txt\r\n\x1b7\x1b[?1049h\x1b[?1h\x1b=\x1b[?25l\x1b[2 q"
    return begin + _HOME_AND_CLEAR + lines + status + scrolled + b"\x1b[3;7H\x1b[?25h"


def _editor_left() -> bytes:
    return _editor() + b"\x1b[?1l\x1b>\x1b[10;1H\x1b[?1049l\x1b[0 q$ "


def _meter() -> bytes:
    frames = []
    for tick in range(4):
        rows = b"".join(b"%5d root %3d.%d%% \x1b[32mproc%d\x1b[m\x1b[K\r\n" % (i, i * tick, tick, i) for i in range(6))
        frames.append(
            b"\x1b[H\x1b[1mtop - %d up\x1b[m\x1b[K\r\n\x1b[44m\x1b[K  PID USER\x1b[m\r\n" % tick + rows + b"\x1b[J"
        )
    return b"\x1b[?1049h\x1b[?25l" + b"".join(frames)


def _wide_and_combining() -> bytes:
    frame = "│─┼ frame\r\n"
    return ("漢字とかな " * 9 + "\r\nnai\u0308ve cafe\u0301 Ω ≈ ç√ 한국어\r\n" + "🙂" * 25 + "\r\n" + frame).encode()


def _tabs_and_margins() -> bytes:
    tabs = b"a\tb\tc\r\n\x1b[3g\x1b[5G\x1bH\x1b[15G\x1bH\rx\ty\tz\r\n"
    inside = b"\x1b[3;6r\x1b[6;1Hone\ntwo\nthree\r\n\x1bM\x1bM\x1bM\x1bMtop\x1b[?6h\x1b[2;3Horigin"
    return tabs + inside


def _progress() -> bytes:
    bars = b"".join(b"\r[%-20s] %3d%%" % (b"#" * (i // 5), i) for i in range(0, 101, 5))
    return b"downloading\r\n" + bars + b"\r\n\x1b[33mwarning\x1b[0m: \x1b[4mdone\x1b[24m\x1b[0m\r\n"


def _lines_and_boxes() -> bytes:
    box = b"\x1b(0lqqqqqqqk\r\nx\x1b(B text \x1b(0 x\r\nmqqqqqqqj\x1b(B\r\n"
    return box + b"\x1b)0a\x0eqqq\x0fb\r\n" + b"-\x1b[30b\r\n" + b"w" * 130 + b"\r\n"


def _scrolled_far() -> bytes:
    return (
        b"".join(b"\x1b[3%dm%d\x1b[0m line that scrolls out\r\n" % (i % 8, i) for i in range(300)) + b"\x1b[4;1H\x1b[J"
    )


def _bottom_left_blank() -> bytes:
    """The cursor above empty last rows: what a plain formatter gets wrong."""
    return b"".join(b"row %d\r\n" % i for i in range(40)) + b"\x1b[3;1H\x1b[J\x1b[2;3H"


_MAKERS: tuple[Callable[[], bytes], ...] = (
    *(_colored_listing, _shell_with_marks, _editor, _editor_left, _meter, _wide_and_combining, _tabs_and_margins),
    *(_progress, _lines_and_boxes, _scrolled_far, _bottom_left_blank),
)
SESSIONS: dict[str, bytes] = {maker.__name__.strip("_").replace("_", " "): maker() for maker in _MAKERS}

# Whole pieces. Not among them, as a drawing does not carry it: protected cells, single shifts, more than one way to the
# alternate screen, wide characters in a charset of lines, repeating what is not before the cursor any more.
PIECES: tuple[bytes, ...] = (
    *(b"a", b"hello ", b"1234", b"   ", b"x" * 30, b"\r\n", b"\n", b"\r", b"\t", b"\b", b"x\x1b[5b"),
    *("漢".encode(), "e\u0301".encode(), "é".encode(), "🙂".encode(), "┌──┐".encode()),
    *(b"\x1b[H", b"\x1b[3;4H", b"\x1b[5;19H", b"\x1b[A", b"\x1b[2B", b"\x1b[3C", b"\x1b[2D", b"\x1b[d", b"\x1b[5G"),
    *(b"\x1b[K", b"\x1b[1K", b"\x1b[2K", b"\x1b[J", b"\x1b[1J", b"\x1b[2J", b"\x1b[4X"),
    *(b"\x1b[L", b"\x1b[2M", b"\x1b[3P", b"\x1b[2@", b"\x1b[S", b"\x1b[T", b"\x1bD", b"\x1bM", b"\x1bE"),
    *(b"\x1b[2;4r", b"\x1b[r", b"\x1b[?6h", b"\x1b[?6l", b"\x1b[?7l", b"\x1b[?7h", b"\x1b[4h", b"\x1b[4l"),
    *(b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b7", b"\x1b8", b"\x1bH", b"\x1b[g", b"\x1b[3g", b"\x1b[I", b"\x1b[Z"),
    *(b"\x1b[31m", b"\x1b[44m", b"\x1b[0m", b"\x1b[1;4;38;2;1;2;3m", b"\x1b[7m", b"\x1b[48;5;200m", b"\x1b[4:3m"),
    *(b"\x1b[?25l", b"\x1b[?25h", b"\x1b[?2004h", b"\x1b[?1h", b"\x1b[?1000h", b"\x1b[?1006h", b"\x1b=", b"\x1b>"),
    *(
        b"\x1b[3 q",
        b"\x1b]2;title\x07",
        b"\x1b]0;x\x1b\\",
        b"\x1b[20h",
        b"\x1b[20l",
        b"\x1b[?5h",
        b"\x1b[6n",
        b"\x1b[c",
    ),
    *(b"\x1b]133;A\x07", b"\x1b]133;B\x07", b"\x1b]133;C\x07", b"\x1b]133;D;1\x1b\\"),
)

# Each makes some terminal answer into the PTY, or do something to its operator.
HOSTILE: tuple[bytes, ...] = (
    *(b"\x05", b"\x1b[c", b"\x1b[>c", b"\x1b[=c", b"\x1b[5n", b"\x1b[6n", b"\x1b[?6n", b"\x1b[x", b"\x1b[>q", b"\x1bZ"),
    *(b"\x1b[21t", b"\x1b[20t", b"\x1b[18t", b"\x1b[14t", b"\x1b[8;50;200t", b"\x1b[?1$p", b"\x1b[4$p", b"\x1b[?u"),
    *(b"\x1bP$qm\x1b\\", b'\x1bP$q"p\x1b\\', b"\x1bP+q544e\x1b\\", b"\x1b]52;c;?\x07", b"\x1b]52;c;cm0gLXJmIH4=\x07"),
    *(b"\x1b]10;?\x07", b"\x1b]11;?\x1b\\", b"\x1b]4;1;?\x07", b"\x1b]2;rm -rf ~\r\n\x07\x1b[21t", b"\x1b[?2048h"),
    *(b"\x1b]8;;file:///etc/passwd\x07x\x1b]8;;\x07", b"\x1b]9;notify\x07", b"\x1b]777;notify;a;b\x07", b"\x1b[5i"),
    *(
        b"\x1b]50;?\x07",
        b"\x1b]1337;File=inline=1:AAAA\x07",
        b"\x1b_Ga=q,i=1;AAAA\x1b\\",
        b"\x1b[?1337h",
        b"\x1b[?996n",
    ),
    *(
        "\u009b6n".encode(),
        "\u009d52;c;?\u009c".encode(),
        b"\x9b6n",
        b"\x7f",
        b"\x1b#8",
        b"\x1b[?40h\x1b[?3h",
        b"\x1b[?2l",
    ),
)

# All that a drawing may hold besides text: no sequence here asks, and none reaches beyond the terminal's own screen.
HARMLESS = re.compile(
    rb"\x1b\[[0-9;:]*[mHXCGJrsg]|\x1b\[\?[0-9;]+[hl]|\x1b\[(?:4|20|2|12)[hl]|\x1b\[[0-6] q|\x1b\[!p|\x1b\[=\d+;1u"
    rb'|\x1b\[[01]"q|\x1b\[>4;\d+m|\x1b[78H=>no|}~]|\x1b[()*+][0-9A-Za-z<>=`%]+|\x1b\]2;[^\x00-\x1f\x7f]*\x1b\\|[\r\n\x0e\x0f]'
)
ANSWERING_MODES = re.compile(rb"\x1b\[\?(?:2048|996|3|40|1337)[hl]")
