"""From the configuration to addresses and credentials: the one place that decides where broker and store are."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.broker import BrokerSettings
from pipeline.broker.settings import is_sensitive
from pipeline.config import PipelineConfig
from pipeline.errors import ConfigError
from pipeline.secrets.secret_file import SecretFile
from pipeline.services import Addresses, status
from pipeline.weights import StoreSettings
from pipeline.wire import RunManifest, Signer, Voucher, key_mark

DEFAULT_CREDENTIALS_HINT = (
    "Start services with `pipeline services up`, or give kafka.bootstrap_servers and secret=FILE."
)


@dataclass(frozen=True)
class Connection:
    """How broker and store are reached.

    Attributes:
        broker: address and librdkafka settings.
        store: address and credentials; its endpoint is empty where only the run's manifest knows it.
    """

    broker: BrokerSettings
    store: StoreSettings

    def with_manifest(self, manifest: RunManifest) -> "Connection":
        """Fill in the store's address from the run's manifest, where the configuration names none."""
        if self.store.endpoint:
            return self
        store = replace(
            self.store,
            endpoint=manifest.store_endpoint,
            bucket=manifest.store_bucket,
            # Credentials that are for TLS only are not sent without it, whatever the manifest says.
            secure=manifest.store_secure or self.store.secure,
        )
        return Connection(self.broker, store)


def connect(config: PipelineConfig) -> Connection:
    """Settle addresses and credentials; opens no connection.

    An address in the configuration wins, then the secret file's, then the services that run in ``services.folder``.

    Raises:
        ConfigError: no broker is named anywhere, the secret file cannot be read or is open to others, or a secret
            stands among the settings.
    """
    _refuse_secrets("kafka.producer", config.kafka.producer)
    _refuse_secrets("kafka.consumer", config.kafka.consumer)
    secret = read_secret(config)
    services = None if config.services.kind == "external" else status(config.services.folder)
    own_broker = config.kafka.bootstrap_servers or secret.kafka.bootstrap_servers
    bootstrap = own_broker or (services.bootstrap_servers if services is not None else "")
    if not bootstrap:
        folder = Path(config.services.folder) / "services.json"
        raise ConfigError(f"No broker is configured, and no services run ({folder}). {DEFAULT_CREDENTIALS_HINT}")
    # With an address of one's own, the store's comes from the manifest: the client needs the broker and a secret only.
    endpoint = config.store.endpoint or secret.store.endpoint
    if not endpoint and not own_broker and services is not None:
        endpoint = services.endpoint
    if services is not None and not own_broker:
        _check_secret(services, config, secret)
    broker = BrokerSettings(
        bootstrap_servers=bootstrap,
        username=secret.kafka.username or None,
        password=secret.kafka.password if secret.kafka.username else None,
        ca=secret.kafka.ca,
        producer=config.kafka.producer,
        consumer=config.kafka.consumer,
    )
    return Connection(
        broker,
        StoreSettings(
            endpoint=endpoint,
            access_key=secret.store.access_key or (services.access_key if services is not None else ""),
            secret_key=secret.store.secret_key or (services.secret_key if services is not None else ""),
            bucket=config.store.bucket,
            secure=config.store.secure or secret.store.secure,
            ca=secret.store.ca,
            region=config.store.region,
        ),
    )


def read_secret(config: PipelineConfig) -> SecretFile:
    """The secret file that the configuration names; an empty one where it names none.

    Raises:
        ConfigError: it cannot be read, is open to others, or holds what it cannot.
    """
    return SecretFile.read(Path(config.secret)) if config.secret else SecretFile()


def signer_of(config: PipelineConfig) -> Signer:
    """What names and signs the experience of this process; one that does nothing without a client's secret file.

    Raises:
        ConfigError: as :func:`read_secret`, or the file's key is damaged.
    """
    actor = read_secret(config).actor
    try:
        return Signer(actor.name, actor.key)
    except ValueError:
        raise _damaged(config) from None


def with_actors(config: PipelineConfig) -> PipelineConfig:
    """The configuration of a learner, saying by which key of its secret file actors' names are checked.

    Raises:
        ConfigError: as :func:`read_secret`, or the file's key is damaged.
    """
    key = read_secret(config).actors.key
    try:
        return replace(config, learner=replace(config.learner, actors=key_mark(key) if key else ""))
    except ValueError:
        raise _damaged(config) from None


def voucher_of(config: PipelineConfig) -> Voucher | None:
    """What tells in whose name records of a run were written; None where its learner takes every name as it is.

    Args:
        config: the learner's, with the secret file of whoever asks.

    Raises:
        ConfigError: the secret file does not hold the key that the learner checks by.
    """
    mark = config.learner.actors
    if not mark:
        return None
    key = read_secret(config).actors.key
    try:
        if key and key_mark(key) == mark:
            return Voucher(key)
    except ValueError:
        raise _damaged(config) from None
    raise ConfigError(
        f"the learner of this run checks actors' names by a key (mark {mark}) that {config.secret or 'no secret file'} "
        "does not hold: give secret=FILE, that of the learner or of the role offline"
    )


def _damaged(config: PipelineConfig) -> ConfigError:
    return ConfigError(f"the key of actors in the secret file {config.secret} is not hexadecimal: the file is damaged")


def _check_secret(services: Addresses, config: PipelineConfig, secret: SecretFile) -> None:
    if services.secrets and not secret.kafka.username:
        raise ConfigError(
            f"the services in {config.services.folder} let nobody in without a secret file: give secret=FILE, such as "
            f"secret={Path(services.secrets) / 'learner' / 'secret.yaml'} for a learner"
        )


def _refuse_secrets(name: str, options: Mapping[str, Any]) -> None:
    """Settings are shown, logged, and published with the run."""
    for key in options:
        if is_sensitive(key):
            raise ConfigError(f"{name}.{key} is a secret, and settings are no secret: put it into a file, secret=FILE")
