"""``pipeline secrets``: certificates, users and rights."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline.config import PipelineConfig
from pipeline.errors import ConfigError

if TYPE_CHECKING:
    from pipeline.secrets.users import Users


def secrets(config: PipelineConfig, action: str, overrides: Sequence[str]) -> int:
    """``pipeline secrets init|apply|client NAME|revoke NAME|rotate NAME``."""
    if action == "init":
        init_secrets(config)
        return 0
    if action == "apply":
        apply_secrets(config)
        return 0
    name = config.secrets.name
    if not name:
        raise ConfigError(f"Whom is it about? `pipeline secrets {action} NAME`.")
    users = _users(config)
    change = {"client": users.client, "revoke": users.revoke, "rotate": users.rotate}[action](name)
    print("\n".join(change.sentences))
    return 0


def init_secrets(config: PipelineConfig) -> None:
    """Make what is missing in the folder of secrets, and say what that was."""
    from pipeline.secrets.folder import SecretsFolder
    from pipeline.secrets.users import hosts

    folder = SecretsFolder(config.secrets.folder)
    made = folder.init(hosts(config))
    print("\n".join(f"made    {folder.path / name}" for name in made) or f"{folder.path} holds everything already.")


def apply_secrets(config: PipelineConfig) -> None:
    """Make users, topics and rights on the running broker and store, and say what was done."""
    print("\n".join(_users(config).apply()), flush=True)


def _users(config: PipelineConfig) -> "Users":
    from pipeline.secrets.users import Users

    return Users(config)
