"""From the configuration to addresses and credentials: the one place that decides where broker and store are."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from pipeline.broker import BrokerSettings
from pipeline.config import PipelineConfig, ServicesConfig
from pipeline.errors import ConfigError
from pipeline.services import status
from pipeline.weights import StoreSettings
from pipeline.wire import RunManifest

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
        store = StoreSettings(
            endpoint=manifest.store_endpoint,
            access_key=self.store.access_key,
            secret_key=self.store.secret_key,
            bucket=manifest.store_bucket,
            secure=manifest.store_secure,
            region=self.store.region,
        )
        return Connection(self.broker, store)


def connect(config: PipelineConfig) -> Connection:
    """Settle addresses and credentials; opens no connection.

    An address in the configuration wins, then the secret file's, then the services that run in ``services.folder``.

    Raises:
        ConfigError: no broker is named anywhere, or the secret file cannot be read.
    """
    secret = _read_secret(config.secret)
    services = _read_services(config.services)
    kafka, store = _section(secret, "kafka"), _section(secret, "store")
    own_broker = config.kafka.bootstrap_servers or str(kafka.get("bootstrap_servers", ""))
    bootstrap = own_broker or str(services.get("bootstrap_servers", ""))
    if not bootstrap:
        folder = Path(config.services.folder) / "services.json"
        raise ConfigError(f"No broker is configured, and no services run ({folder}). {DEFAULT_CREDENTIALS_HINT}")
    # With an address of one's own, the store's comes from the manifest: the client needs the broker and a secret only.
    endpoint = config.store.endpoint or str(store.get("endpoint", ""))
    if not endpoint and not own_broker:
        endpoint = str(services.get("endpoint", ""))
    broker = BrokerSettings(
        bootstrap_servers=bootstrap,
        username=cast(str | None, kafka.get("username")),
        password=str(kafka["password"]) if "password" in kafka else None,
        producer=config.kafka.producer,
        consumer=config.kafka.consumer,
    )
    return Connection(
        broker,
        StoreSettings(
            endpoint=endpoint,
            access_key=str(store.get("access_key", services.get("access_key", ""))),
            secret_key=str(store.get("secret_key", services.get("secret_key", ""))),
            bucket=config.store.bucket,
            secure=config.store.secure,
            region=config.store.region,
        ),
    )


def _section(tree: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = tree.get(name, {})
    if not isinstance(section, Mapping):
        raise ConfigError(f"The secret file's {name!r} must be a mapping.")
    return cast(Mapping[str, Any], section)


def _read_secret(path: str) -> Mapping[str, Any]:
    if not path:
        return {}
    try:
        tree = yaml.safe_load(Path(path).read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"The secret file {path} cannot be read: {error}") from error
    if not isinstance(tree, Mapping):
        raise ConfigError(f"The secret file {path} must hold `kafka:` and `store:` mappings.")
    return cast(Mapping[str, Any], tree)


def _read_services(services: ServicesConfig) -> Mapping[str, Any]:
    running = None if services.kind == "external" else status(services.folder)
    found: dict[str, Any] = {} if running is None else asdict(running)
    return found
