"""The object store's contract, on moto and on MinIO."""

import pickle
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from minio.error import S3Error

from pipeline.errors import (
    ConfigError,
    PipelineError,
    StoreAccessError,
    StoreUnreachableError,
    WeightsCorruptError,
    WeightsExistError,
    WeightsNotFoundError,
)
from pipeline.services import Services
from pipeline.weights import ObjectStore, StoreSettings, sha256


def test_what_is_put_is_got(store: ObjectStore):
    data = bytes(range(256)) * 4000
    etag = store.put_once("run/weights/a", data)
    found = store.stat("run/weights/a")
    assert (found.size, found.etag) == (len(data), etag)
    assert store.get("run/weights/a", len(data), sha256(data)) == data


def test_an_object_is_written_once(store: ObjectStore):
    store.put_once("key", b"first")
    with pytest.raises(WeightsExistError, match="key"):
        store.put_once("key", b"second")
    assert store.get("key", 5, sha256(b"first")) == b"first"


def test_of_sixteen_writers_one_wins(store: ObjectStore, services: Services):
    if services.addresses.kind == "embedded":
        pytest.skip("moto looks the key up before it writes: two threads may both find it free")
    start = threading.Barrier(16)

    def write(number: int) -> int | None:
        mine = ObjectStore(store.settings)
        start.wait()
        try:
            mine.put_once("contended", b"%02d" % number * 50_000)
        except WeightsExistError:
            return None
        return number

    with ThreadPoolExecutor(16) as pool:
        winners = [n for n in pool.map(write, range(16)) if n is not None]
    assert len(winners) == 1
    data = b"%02d" % winners[0] * 50_000
    assert store.get("contended", len(data), sha256(data)) == data


def test_a_store_without_conditional_writes_is_looked_up_first(store: ObjectStore, monkeypatch: pytest.MonkeyPatch):
    put = store._client.put_if_absent

    def refuse(bucket: str, key: str, data: bytes, *, conditional: bool) -> str:
        if conditional:
            raise S3Error(None, "NotImplemented", "no If-None-Match", "r", "r", "h")
        return put(bucket, key, data, conditional=False)

    monkeypatch.setattr(store._client, "put_if_absent", refuse)
    store.put_once("key", b"first")
    with pytest.raises(WeightsExistError):
        store.put_once("key", b"second")


@pytest.mark.parametrize("size, digest", [(5, sha256(b"other")), (4, sha256(b"1234")), (6, sha256(b"123456"))])
def test_other_bytes_than_announced_are_refused(store: ObjectStore, size: int, digest: str):
    store.put_once("key", b"12345")
    with pytest.raises(WeightsCorruptError, match="key"):
        store.get("key", size, digest)


def test_a_missing_object_and_a_missing_bucket_are_named(store: ObjectStore):
    for call in (lambda: store.stat("nothing"), lambda: store.get("nothing", 1, "")):
        with pytest.raises(WeightsNotFoundError, match="nothing"):
            call()
    elsewhere = ObjectStore(replace(store.settings, bucket="no-such-bucket"))
    with pytest.raises(WeightsNotFoundError, match="no-such-bucket"):
        elsewhere.put_once("key", b"data")


def test_making_the_bucket_twice_is_fine(store: ObjectStore):
    store.ensure_bucket()
    ObjectStore(store.settings).ensure_bucket()
    assert store.reachable()


def test_wrong_credentials_are_said(local_services: Services):
    addresses = local_services.addresses
    store = ObjectStore(StoreSettings(addresses.endpoint, "nobody", "wrong-password", "bucket"))
    with pytest.raises(StoreAccessError, match="secret key"):
        store.put_once("key", b"data")
    with pytest.raises(StoreAccessError):
        store.ensure_bucket()
    assert store.reachable()


@pytest.mark.parametrize("listening", [False, True])
def test_a_store_that_does_not_answer_is_named_soon(listening: bool):
    """Nobody listens, or somebody listens and never answers."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        if listening:
            taken.listen()
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        store = ObjectStore(StoreSettings(endpoint, "a", "b", "bucket", read_timeout=0.3))
        started = time.monotonic()
        for call in (
            store.ensure_bucket,
            lambda: store.put_once("key", b"data"),
            lambda: store.stat("key"),
            lambda: store.get("key", 1, ""),
        ):
            with pytest.raises(StoreUnreachableError, match=endpoint):
                call()
        assert not store.reachable()
        assert time.monotonic() - started < 10.0


def test_an_answer_that_is_cut_short_is_an_error(store: ObjectStore):
    """A server that promises more bytes than it sends."""

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\nETag: x\r\n\r\nshort")

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        endpoint = f"127.0.0.1:{listener.getsockname()[1]}"
        cut = ObjectStore(replace(store.settings, endpoint=endpoint))
        with pytest.raises(PipelineError):
            cut.get("key", 100, sha256(b"x" * 100))
        thread.join()


@pytest.mark.parametrize("endpoint", ["http://host:9000", "host:9000/path", "", "a b"])
def test_a_malformed_endpoint_is_refused(endpoint: str):
    with pytest.raises(ConfigError, match=r"store\.endpoint"):
        ObjectStore(StoreSettings(endpoint, "a", "b", "bucket"))


def test_a_malformed_bucket_is_refused(store: ObjectStore):
    with pytest.raises(ConfigError):
        ObjectStore(replace(store.settings, bucket="X")).ensure_bucket()


def test_the_secret_key_shows_nowhere():
    settings = StoreSettings("host:1", "user", "hunter2\n", "bucket")
    assert "hunter2" not in repr(settings)
    assert settings.secret_key == "hunter2"
    assert "hunter2" not in repr(pickle.loads(pickle.dumps(settings)))
