"""Where the object store is."""

from dataclasses import dataclass

from pipeline.secret import Secret


@dataclass(frozen=True)
class StoreSettings:
    """How to reach an S3 object store.

    Attributes:
        endpoint: ``host:port``, without a scheme.
        access_key, secret_key: credentials; a plain string is wrapped into a ``Secret``.
        bucket: holds the weights of all runs.
        secure: TLS.
        ca: PEM of the authorities that the store's certificate may be of; empty: those that certifi trusts.
        region: the store's region; given, so that it needs not be asked for.
        connect_timeout, read_timeout: seconds.
    """

    endpoint: str
    access_key: str
    secret_key: str
    bucket: str
    secure: bool = False
    ca: str = ""
    region: str = "us-east-1"
    connect_timeout: float = 3.0
    read_timeout: float = 10.0

    def __post_init__(self) -> None:
        if not isinstance(self.secret_key, Secret):
            object.__setattr__(self, "secret_key", Secret(self.secret_key))

    @property
    def address(self) -> str:
        """The address as it is named in messages."""
        return f"{'https' if self.secure else 'http'}://{self.endpoint}/{self.bucket}"
