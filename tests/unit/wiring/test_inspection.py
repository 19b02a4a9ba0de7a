"""What a look at the parts says, and that it says no secret."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from outlive.wiring.inspection import inspect_objects, without_credentials
from outlive.wiring.settings import read_settings

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("s3://key:hush@bucket/prefix?secret=hush#hush", "s3://bucket/prefix"),
        ("s3://key@bucket", "s3://bucket"),
    ],
)
def test_an_address_is_shown_without_what_opens_it(url: str, shown: str) -> None:
    assert without_credentials(SecretStr(url)) == shown


async def test_a_folder_is_shown_whole(tmp_path: Path) -> None:
    settings = read_settings({"home": tmp_path})
    assert await inspect_objects(settings) == f"{tmp_path}/objects: can be written and read"
