"""Users come from the machine's own files, and a program keeps nothing of the guest's rights."""

from pathlib import Path

import pytest

from outlive.guest.refusal import RefusalError
from outlive.guest.users import User, Users


@pytest.fixture
def users(tmp_path: Path) -> Users:
    (tmp_path / "passwd").write_text(
        "root:x:0:0:root:/root:/bin/bash\nbroken\nann:x:1001:1001::/srv/ann:/bin/zsh\nodd:x:no:1::/:\n"
    )
    (tmp_path / "group").write_text("ann:x:1001:\ndocker:x:50:bob,ann\nsudo:x:27:bob\n")
    return Users(str(tmp_path / "passwd"), str(tmp_path / "group"))


def test_a_user_is_found_by_name_and_by_number_with_all_groups(users: Users) -> None:
    ann = User("ann", 1001, 1001, (1001, 50), "/srv/ann", "/bin/zsh")
    assert users.find("ann") == users.find("1001") == ann


def test_the_agent_and_root_are_there_also_where_no_file_names_them(tmp_path: Path) -> None:
    users = Users(str(tmp_path / "none"), str(tmp_path / "none"))
    assert users.find("agent")[:3] == ("agent", 1000, 1000)
    assert users.find("root").uid == 0


def test_an_unknown_user_is_refused(users: Users) -> None:
    for name in ("nobody-here", "odd", "", "-1", "99999999999"):
        with pytest.raises(RefusalError, match="no user"):
            users.find(name)


def test_a_changed_file_is_read_again(users: Users, tmp_path: Path) -> None:
    assert users.find("ann").uid == 1001
    (tmp_path / "passwd").write_text("ann:x:2002:2002::/elsewhere:/bin/sh\n")
    assert users.find("ann").uid == 2002
