"""An S3 bucket in which an object, once written, stays what it is."""

import re
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, cast

import certifi
import urllib3
from minio import Minio
from minio.error import InvalidResponseError, MinioException, S3Error, ServerError
from urllib3.exceptions import HTTPError

from pipeline.errors import (
    ConfigError,
    StoreAccessError,
    StoreError,
    StoreUnreachableError,
    WeightsCorruptError,
    WeightsExistError,
    WeightsNotFoundError,
)
from pipeline.tls import client_context, explain_tls
from pipeline.weights.settings import StoreSettings
from pipeline.weights.tensors import sha256

_ENDPOINT = re.compile(r"[A-Za-z0-9._\-\[\]:]+")
_MISSING = frozenset({"NoSuchKey", "NoSuchObject", "NoSuchBucket", "ResourceNotFound"})
_REFUSED = frozenset(
    {
        "AccessDenied",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "AllAccessDisabled",
        "ExpiredToken",
        "InvalidToken",
        "RequestTimeTooSkewed",
    }
)
_SKEW_S = 900.0
"""Further off than this from the store's clock, signatures are refused."""


@dataclass(frozen=True)
class ObjectInfo:
    """What the store says of an object.

    Attributes:
        size: bytes.
        etag: the store's own fingerprint, without quotes.
    """

    size: int
    etag: str


class _Client(Minio):
    """The SDK with the one request that it lacks.

    ``put_object(metadata={"If-None-Match": "*"})`` sends user metadata and silently overwrites, so
    the header is given to the SDK's single PUT request itself.
    """

    def put_if_absent(self, bucket: str, key: str, data: bytes, *, conditional: bool) -> str:
        """One signed PUT; its etag."""
        headers: dict[str, str | list[str] | tuple[str]] = {"Content-Type": "application/octet-stream"}
        if conditional:
            headers["If-None-Match"] = "*"
        return self._put_object(bucket, key, data, headers=headers).etag or ""


class ObjectStore:
    """Whole, write-once objects under keys. Thread-safe; opens connections when they are needed.

    Every request has short time-outs, so a store that is away is an error soon. Nothing is
    retried here: who calls decides when to try again.

    Raises:
        ConfigError: the endpoint or the bucket's name are malformed.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self.settings = settings
        self._bucket = settings.bucket
        try:
            if not _ENDPOINT.fullmatch(settings.endpoint):
                raise ValueError("it is not host:port")
            self._client = _Client(
                settings.endpoint,
                access_key=settings.access_key or None,
                secret_key=str.__str__(settings.secret_key) or None,
                secure=settings.secure,
                region=settings.region,
                http_client=http_pool(settings),
            )
        except ValueError as exc:
            raise ConfigError(
                f"the store's endpoint {settings.endpoint!r} is refused: {exc}; set store.endpoint to host:port"
            ) from exc

    def ensure_bucket(self, probe: str | None = None) -> None:
        """Make the bucket if it is not there; safe to call from several processes at once.

        Args:
            probe: a key that this user may read, be it there or not. With it, a user who may neither look at the
                bucket nor make one only sees whether it is there.

        Raises:
            WeightsNotFoundError: it is not there, and this user may not make it.
            StoreUnreachableError, StoreAccessError, StoreError: see there.
        """
        with self._translated("making the bucket"):
            try:
                if not self._client.bucket_exists(self._bucket):
                    self._client.make_bucket(self._bucket)
            except S3Error as exc:
                if exc.code == "AccessDenied" and probe is not None:
                    self._probe(probe)
                elif exc.code not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                    raise

    def _probe(self, key: str) -> None:
        # GET, since a refused HEAD does not say what it was about.
        try:
            self._client.get_object(self._bucket, key, length=1).close()
        except S3Error as exc:
            if exc.code not in ("NoSuchKey", "InvalidRange"):
                raise

    def put_once(self, key: str, data: bytes) -> str:
        """Write an object that is not there yet; its etag. It is visible whole, or not at all.

        Of several writers of one key exactly one succeeds: the store decides, by a conditional
        request. (Only where a store cannot do that is the key looked up first.)

        Raises:
            WeightsExistError: the key is taken; nothing was changed.
            StoreUnreachableError: no answer; whether the object is there is unknown.
            StoreAccessError, StoreError: see there.
        """
        with self._translated("writing", key):
            try:
                return self._client.put_if_absent(self._bucket, key, data, conditional=True)
            except S3Error as exc:
                if exc.code == "NotImplemented":
                    return self._put_after_stat(key, data)
                if exc.code in ("PreconditionFailed", "ConditionalRequestConflict"):
                    raise self._taken(key) from exc
                raise

    def stat(self, key: str) -> ObjectInfo:
        """What the store says of an object.

        Raises:
            WeightsNotFoundError: there is none under the key.
            StoreUnreachableError, StoreAccessError, StoreError: see there.
        """
        with self._translated("looking up", key):
            found = self._client.stat_object(self._bucket, key)
        return ObjectInfo(found.size or 0, (found.etag or "").strip('"'))

    def get(self, key: str, expected_size: int, expected_sha256: str) -> bytes:
        """The object's bytes, checked. Never reads more than ``expected_size`` + 1 bytes.

        Raises:
            WeightsCorruptError: size or sha256 differ from what is expected.
            WeightsNotFoundError: there is no object under the key.
            StoreUnreachableError, StoreAccessError, StoreError: see there.
        """
        with self._translated("reading", key):
            response = self._client.get_object(self._bucket, key)
            try:
                data = response.read(expected_size + 1)
            finally:
                response.close()
                response.release_conn()
        if len(data) != expected_size:
            more = "more than " if len(data) > expected_size else ""
            raise WeightsCorruptError(
                f"{key} at {self.settings.address} has {more}{min(len(data), expected_size)} "
                f"bytes, announced were {expected_size}"
            )
        actual = sha256(data)
        if actual != expected_sha256:
            raise WeightsCorruptError(
                f"{key} at {self.settings.address} has sha256 {actual}, announced was {expected_sha256}"
            )
        return data

    def remove(self, key: str) -> None:
        """Remove an object; one that is not there is as good as removed.

        Raises:
            StoreUnreachableError: no answer; whether the object is there is unknown.
            StoreAccessError, StoreError: see there.
        """
        with suppress(WeightsNotFoundError), self._translated("removing", key):
            self._client.remove_object(self._bucket, key)

    def reachable(self) -> bool:
        """Whether the store answers at all, be it with a refusal."""
        try:
            with self._translated("reaching the bucket"):
                self._client.bucket_exists(self._bucket)
        except StoreUnreachableError:
            return False
        except StoreError:
            return True
        return True

    def list(self, prefix: str) -> Sequence[str]:
        """The keys that begin with ``prefix``, sorted.

        Raises:
            StoreUnreachableError, StoreAccessError, StoreError: see there.
        """
        with self._translated("listing", prefix):
            found = self._client.list_objects(self._bucket, prefix=prefix, recursive=True)
            return sorted(item.object_name for item in found if item.object_name)

    def _put_after_stat(self, key: str, data: bytes) -> str:
        try:
            self._client.stat_object(self._bucket, key)
        except S3Error as exc:
            if exc.code not in _MISSING:
                raise
            return self._client.put_if_absent(self._bucket, key, data, conditional=False)
        raise self._taken(key)

    def _taken(self, key: str) -> WeightsExistError:
        return WeightsExistError(
            f"{key} at {self.settings.address} is already there and is never overwritten; "
            "another learner may be running under this run's name"
        )

    @contextmanager
    def _translated(self, doing: str, key: str | None = None) -> Generator[None]:
        where = f"{key} at {self.settings.address}" if key else self.settings.address
        try:
            yield
        except S3Error as exc:
            if exc.code == "NoSuchBucket":
                raise WeightsNotFoundError(
                    f"bucket {self._bucket} does not exist at {self.settings.endpoint} ({exc.code}, while {doing}"
                    f"{f' {key}' if key else ''}); have it made with `pipeline secrets apply run=NAME`, or name "
                    "another one by store.bucket"
                ) from exc
            if exc.code in _MISSING:
                raise WeightsNotFoundError(f"{where} does not exist ({exc.code}, while {doing})") from exc
            if exc.code in _REFUSED:
                raise StoreAccessError(f"the store refused {doing} {where}: {_refusal(exc)}") from exc
            raise StoreError(f"{exc.code} from the store while {doing} {where}: {exc}") from exc
        except (HTTPError, OSError) as exc:
            raise unreachable(exc, self.settings, f"{doing} {where}") from exc
        except (ServerError, InvalidResponseError, MinioException) as exc:
            raise StoreError(f"unexpected answer while {doing} {where}: {exc}") from exc
        except ValueError as exc:
            raise ConfigError(f"the store's settings are refused ({where}): {exc}") from exc


def http_pool(settings: StoreSettings) -> urllib3.PoolManager:
    """Connections to the store, its certificate checked, with short time-outs.

    Raises:
        ValueError: the authority is no PEM certificate.
    """
    trust: dict[str, Any] = {"cert_reqs": "CERT_REQUIRED", "ca_certs": certifi.where()}
    if settings.ca:
        trust = {"ssl_context": client_context(settings.ca)}
    return urllib3.PoolManager(
        timeout=urllib3.Timeout(connect=settings.connect_timeout, read=settings.read_timeout),
        maxsize=4,
        # A repeated PUT could meet its own first try and call it a stranger's.
        retries=cast(Any, False),
        **trust,
    )


def unreachable(error: HTTPError | OSError, settings: StoreSettings, doing: str) -> StoreUnreachableError:
    """The package's error for a connection that did not come about, or broke."""
    for cause in _causes(error):
        if (wrong := explain_tls(cause)) is not None:
            return StoreUnreachableError(
                f"no safe connection to the object store at {settings.endpoint} while {doing}: {wrong}"
            )
    return StoreUnreachableError(
        f"the object store at {settings.endpoint} does not answer while {doing}: {_root(error)}; check the address and "
        "that the store runs"
    )


def _refusal(error: S3Error) -> str:
    """Why, and what to do, as a clause."""
    skew = _skew(error)
    if error.code == "RequestTimeTooSkewed" or abs(skew) > _SKEW_S:
        direction = "behind" if skew > 0 else "ahead of"
        off = f" ({abs(skew) / 60:.0f} minutes {direction} the store's)" if abs(skew) > _SKEW_S else ""
        return f"this machine's clock is too far off{off} for the store to take its signatures; set one of the two"
    if error.code == "AccessDenied":
        return (
            "AccessDenied: this user lacks the right; have it given by `pipeline secrets apply run=NAME` for a role, "
            "by `pipeline secrets client USER run=NAME` for a client"
        )
    return (
        f"{error.code}; check access key and secret key: those of the secret file may have been replaced "
        "(`pipeline secrets rotate`) or taken back"
    )


def _skew(error: S3Error) -> float:
    """Seconds by which the store's clock is ahead; a refused HEAD says nothing else of it."""
    response: Any = error.response  # None in an error that was made here
    said = response.headers.get("Date") if response is not None else None
    try:
        return parsedate_to_datetime(said).timestamp() - time.time() if said else 0.0
    except ValueError:
        return 0.0


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and those that it wraps, in urllib3's ways and Python's."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        reason: Any = getattr(error, "reason", None)
        inner = (
            reason
            if isinstance(reason, BaseException)
            else next((arg for arg in error.args if isinstance(arg, BaseException)), None)
        )
        error = inner or error.__cause__ or error.__context__


def _root(error: BaseException) -> str:
    """urllib3 wraps the reason in layers of URLs; the innermost says it."""
    reason = getattr(error, "reason", None)
    return _root(reason) if isinstance(reason, BaseException) else str(error) or repr(error)
