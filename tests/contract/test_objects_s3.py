"""The object store contract on a real S3 server, and what is special to S3."""

import socket

import anyio
import pytest

from outlive.base import DeadlineError, DeniedError, InvalidError, NotFoundError, UnavailableError, new_operation_id
from outlive.storage import objects as objects_module
from outlive.storage.objects import ObjectStore, open_objects
from outlive.testing.objects import ObjectsContract
from services.seaweedfs import Credentials, SeaweedService, seaweedfs

__all__ = ["seaweedfs"]
pytestmark = pytest.mark.anyio


class TestS3Objects(ObjectsContract):
    @pytest.fixture
    def objects(self, seaweedfs: SeaweedService) -> ObjectStore:
        return seaweedfs.open()


async def test_two_prefixes_of_one_bucket_do_not_see_each_other(seaweedfs: SeaweedService) -> None:
    one, other = seaweedfs.open(), seaweedfs.open()
    await one.put_new("key", b"one")
    assert not await other.exists("key")
    assert [found async for found in other.list()] == []


async def test_a_missing_bucket_is_called_that(seaweedfs: SeaweedService) -> None:
    objects = seaweedfs.open(bucket=f"none-{new_operation_id()[-12:]}")
    with pytest.raises(NotFoundError) as raised:
        await objects.check()
    assert raised.value.code == "objects.bucket_not_found"
    with pytest.raises(NotFoundError) as raised:
        await objects.get("key")
    assert raised.value.code == "objects.bucket_not_found"


@pytest.mark.parametrize("who", ["stranger", "wrong secret"])
async def test_bad_credentials_are_denied_and_not_told(seaweedfs: SeaweedService, who: str) -> None:
    good = seaweedfs.credentials
    bad = Credentials("stranger-key", "any") if who == "stranger" else Credentials(good.access_key_id, "wrong-secret")
    objects = seaweedfs.open(credentials=bad)
    for call in (objects.check(), objects.put_new("key", b""), objects.get("key"), objects.size("key")):
        with pytest.raises(DeniedError) as raised:
            await call
        assert bad.access_key_id not in str(raised.value)
        assert bad.secret_access_key not in str(raised.value)


async def test_a_server_that_is_not_there_is_unavailable_soon() -> None:
    with socket.socket() as nobody:  # bound and not listening: nobody else can take the port meanwhile
        nobody.bind(("127.0.0.1", 0))
        objects = open_objects(
            "s3://bucket",
            endpoint=f"http://127.0.0.1:{nobody.getsockname()[1]}",
            region="us-east-1",
            access_key_id="a",
            secret_access_key="s",
        )
        with anyio.fail_after(20), pytest.raises(UnavailableError) as raised:
            await objects.get("key")
    assert raised.value.is_retryable


async def test_a_server_that_never_answers_meets_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects_module, "CALL_DEADLINE_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the connection and says nothing
        objects = open_objects(
            "s3://bucket",
            endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}",
            region="us-east-1",
            access_key_id="a",
            secret_access_key="s",
        )
        with anyio.fail_after(10), pytest.raises(DeadlineError):
            await objects.put_new("key", b"x")
        with anyio.fail_after(10), pytest.raises(DeadlineError):
            await objects.check()


@pytest.mark.parametrize("url", ["s3://", "s3:///prefix", "gs://bucket", "http://host/x", "file://host/x", "file:"])
def test_an_address_that_is_no_object_store_is_refused(url: str) -> None:
    with pytest.raises(InvalidError):
        open_objects(url)
