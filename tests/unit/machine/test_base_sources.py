"""The host's own apt sources, in both formats, lead to Debian's mirror and to nobody else's."""

from pathlib import Path

from outlive.machine.backends.bases.apt_sources import parse_deb822, parse_one_line, read_sources, sources_of
from outlive.machine.backends.bases.debian import without_password

DEB822 = """\
# the mirror
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBF
 -----END PGP PUBLIC KEY BLOCK-----
# a comment in the middle
Check-Valid-Until: no

Types: deb
URIs: http://mirror.example/debian-security/
Suites: bookworm-security
Components: main

Enabled: no
Types: deb
URIs: http://gone.example/debian
Suites: bookworm
Components: main

Types: deb-src
URIs: http://source.example/debian
Suites: bookworm
Components: main
"""
ONE_LINE = """\
deb [arch=amd64,i386 signed-by=/usr/share/keyrings/d.gpg lang-=de] http://mirror.example/debian bookworm main # ours
deb-src http://mirror.example/debian bookworm main
# deb http://off.example/debian bookworm main
deb http://mirror.example/debian-security bookworm-security main
"""


def test_a_deb822_stanza_keeps_its_key_and_options_for_another_suite() -> None:
    [release, *_] = sources_of("bookworm", parse_deb822(DEB822))
    text = release.with_suites("bookworm-backports").as_deb822()
    [again] = parse_deb822(text)
    assert again.suites == ("bookworm-backports",)
    assert again.uris == ("http://mirror.example/debian",)
    assert dict(again.options)["Check-Valid-Until"] == "no"
    assert "mQINBF" in dict(again.options)["Signed-By"]
    assert "deb-src" not in text


def test_a_one_line_source_keeps_its_options_in_the_other_format() -> None:
    [release, *_] = sources_of("bookworm", parse_one_line(ONE_LINE))
    assert release.with_suites("bookworm-backports").as_deb822() == (
        "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm-backports\nComponents: main\n"
        "Architectures: amd64 i386\nSigned-By: /usr/share/keyrings/d.gpg\nLanguages-Remove: de\n"
    )


def test_both_formats_give_the_release_its_updates_and_its_security_fixes() -> None:
    assert [source.suites for source in sources_of("bookworm", parse_deb822(DEB822))] == [
        ("bookworm",),
        ("bookworm-updates",),
        ("bookworm-security",),
    ]
    assert [source.suites for source in sources_of("bookworm", parse_one_line(ONE_LINE))] == [
        ("bookworm",),
        ("bookworm-security",),
    ]


def test_disabled_commented_and_foreign_sources_are_never_taken() -> None:
    foreign = parse_one_line("deb http://vendor.example/apt bookworm main")
    assert sources_of("bookworm", foreign) == []
    both = sources_of("bookworm", [*foreign, *parse_deb822(DEB822)])
    assert {uri for source in both for uri in source.uris} == {
        "http://mirror.example/debian",
        "http://mirror.example/debian-security/",
    }


def test_another_release_than_the_mirrors_has_no_source() -> None:
    assert sources_of("trixie", parse_deb822(DEB822)) == []


def test_all_files_of_apt_are_read_and_a_list_of_mirrors_gives_its_first(tmp_path: Path) -> None:
    folder = tmp_path / "sources.list.d"
    folder.mkdir()
    mirrors = tmp_path / "debian.list"
    mirrors.write_text("# ours\nhttp://first.example/debian\tpriority:1\nhttp://second.example/debian\n")
    (tmp_path / "sources.list").write_text(f"deb mirror+file:{mirrors} bookworm main\n")
    (folder / "security.sources").write_text(DEB822)
    (folder / "vendor.list.disabled").write_text("deb http://off.example/debian bookworm main\n")
    found = read_sources(tmp_path)
    assert [source.uris[0] for source in found] == [
        "http://first.example/debian",
        "http://mirror.example/debian",
        "http://mirror.example/debian-security/",
    ]


def test_a_password_in_a_mirrors_address_stays_on_the_host() -> None:
    assert without_password("http://me:secret@mirror.example:80/debian") == "http://mirror.example:80/debian"
    assert without_password("http://mirror.example/debian") == "http://mirror.example/debian"
