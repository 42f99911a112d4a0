"""Users of a MinIO and what they may do with a run's weights, changed while it runs.

Other stores know users in other ways: there they are made by whatever manages that store.
"""

import json
from collections.abc import Callable, Collection
from typing import Any

from minio import MinioAdmin
from minio.credentials.providers import StaticProvider
from minio.error import MinioAdminException
from urllib3.exceptions import HTTPError

from pipeline.errors import StoreAccessError, StoreError
from pipeline.secret import Secret
from pipeline.weights.keys import weights_prefix
from pipeline.weights.settings import StoreSettings
from pipeline.weights.store import http_pool, unreachable

_ACTIONS = {"get": "s3:GetObject", "put": "s3:PutObject", "delete": "s3:DeleteObject"}
_APPLIED = "XMinioAdminPolicyChangeAlreadyApplied"
_UNKNOWN = ("XMinioAdminNoSuchUser", "XMinioAdminNoSuchPolicy")


class StoreAccess:
    """Changes users and policies, as the store's root user.

    Args:
        settings: the store, with the root user's credentials.

    Raises (each method):
        StoreUnreachableError, StoreAccessError, StoreError: the store did not answer or refused.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings
        self._client: Any = MinioAdmin(
            endpoint=settings.endpoint,
            credentials=StaticProvider(settings.access_key, str.__str__(settings.secret_key)),
            region=settings.region,
            secure=settings.secure,
            http_client=http_pool(settings),
        )

    def set_user(self, name: str, secret_key: Secret) -> None:
        """Let a user in with this key, and with no other from now on; its policies stay."""
        key = str.__str__(secret_key)
        self._call(f"setting the key of user {name}", lambda: self._client.user_add(name, key))

    def remove_user(self, name: str) -> None:
        """Let a user in no more."""
        self._call(f"removing user {name}", lambda: self._client.user_remove(name), _UNKNOWN)

    def allow(self, name: str, policy: str, run: str, objects: Collection[str], lists: bool) -> None:
        """Allow a user things with the weights of a run, beside what it may do already.

        Args:
            name: the user.
            policy: the name that these rights have; others that have been given the same get these ones too.
            run: its weights.
            objects: ``get``, ``put``, ``delete``.
            lists: whether the weights' keys may be listed.
        """
        document = _policy(self._settings.bucket, run, objects, lists)
        self._call(f"making policy {policy}", lambda: self._client.policy_add(policy, policy=document))
        self._call(
            f"giving user {name} its rights", lambda: self._client.attach_policy([policy], user=name), (_APPLIED,)
        )

    def _call(self, doing: str, call: Callable[[], object], fine: Collection[str] = ()) -> None:
        try:
            call()
        except MinioAdminException as exc:
            said = str(exc)
            if any(code in said for code in fine):
                return
            where = f"the store at {self._settings.endpoint}"
            if "Status: 403" in said or "Status: 401" in said:
                raise StoreAccessError(
                    f"{where} refused {doing}: {_code(exc)}; only its root user may: check the set-up's secret file"
                ) from exc
            raise StoreError(f"{where} failed while {doing}: {_code(exc)}; is it a MinIO?") from exc
        except (HTTPError, OSError) as exc:
            raise unreachable(exc, self._settings, doing) from exc


def _policy(bucket: str, run: str, objects: Collection[str], lists: bool) -> dict[str, Any]:
    prefix = weights_prefix(run)
    statements: list[dict[str, Any]] = []
    if objects:
        actions = [_ACTIONS[name] for name in sorted(objects)]
        statements.append({"Effect": "Allow", "Action": actions, "Resource": [f"arn:aws:s3:::{bucket}/{prefix}*"]})
    if lists:
        # Without a bound on the prefix this is the right to see the keys of every run.
        statements.append(
            {
                "Effect": "Allow",
                "Action": ["s3:ListBucket"],
                "Resource": [f"arn:aws:s3:::{bucket}"],
                "Condition": {"StringLike": {"s3:prefix": [f"{prefix}*"]}},
            }
        )
    return {"Version": "2012-10-17", "Statement": statements}


def _code(error: MinioAdminException) -> str:
    """What the store says, without the identifiers around it."""
    body = str(error).partition("Body: ")[2]
    try:
        said: Any = json.loads(body)
        return f"{said.get('Code', '')} {said.get('Message', '')}".strip()
    except (ValueError, AttributeError):
        return body[:200] or str(error)
