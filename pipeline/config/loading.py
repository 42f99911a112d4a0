"""How a configuration is loaded, stored, and explained when it is refused."""

import difflib
from typing import Any, cast

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipeline.config.ranges import check_ranges
from pipeline.config.tree import PipelineConfig
from pipeline.errors import ConfigError
from pipeline.resources import conf_folder


def load_config(overrides: list[str] | None = None) -> PipelineConfig:
    """Compose the configuration from ``conf/`` and Hydra overrides.

    Args:
        overrides: such as ``["algorithm=dqn", "client.seed=3", "+kafka.producer.linger.ms=20"]``.

    Raises:
        ConfigError: an override names an unknown setting (the nearest valid one is named), has the wrong type, or a
            value is out of range.
    """
    ConfigStore.instance().store(name="schema", node=PipelineConfig)
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(config_dir=str(conf_folder().resolve()), version_base=None):
            tree = compose("config", overrides=_open_mappings(overrides or []))
        config = cast(PipelineConfig, OmegaConf.to_object(tree))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_explain(error, overrides or [])) from error
    check_ranges(tree)
    return config


def settings() -> dict[str, str]:
    """Every setting's dotted name and its default, as text."""
    tree = OmegaConf.structured(PipelineConfig)
    return {name: str(OmegaConf.select(tree, name)) for name in _leaves(tree)}


def to_dict(config: PipelineConfig) -> dict[str, Any]:
    """The configuration as plain containers, for the manifest and the run folder."""
    return cast(dict[str, Any], OmegaConf.to_container(OmegaConf.structured(config)))


def from_dict(tree: dict[str, Any]) -> PipelineConfig:
    """The reverse of :func:`to_dict`.

    Raises:
        ConfigError: the tree holds an unknown setting or a wrong type.
    """
    try:
        merged = OmegaConf.merge(OmegaConf.structured(PipelineConfig), tree)
        return cast(PipelineConfig, OmegaConf.to_object(merged))
    except OmegaConfBaseException as error:
        message = str(error).splitlines()[0]
        raise ConfigError(f"The stored configuration does not fit this version: {message}") from error


OPEN_MAPPINGS = ("kafka.producer", "kafka.consumer", "environment.kwargs")


def _open_mappings(overrides: list[str]) -> list[str]:
    """Let ``kafka.producer.linger.ms=20`` set the one librdkafka key ``linger.ms``."""
    return [_as_mapping(override) for override in overrides]


def _as_mapping(override: str) -> str:
    name, equals, value = override.lstrip("+").partition("=")
    for prefix in OPEN_MAPPINGS:
        if equals and name.startswith(prefix + "."):
            return f"+{prefix}={{{name[len(prefix) + 1 :]}: {value}}}"
    return override


def _leaves(node: Any, prefix: str = "") -> list[str]:
    names: list[str] = []
    for key in node:
        name = f"{prefix}{key}"
        child = OmegaConf.select(node, str(key))
        names += _leaves(child, f"{name}.") if isinstance(child, DictConfig) and len(child) else [name]
    return names


def _explain(error: Exception, overrides: list[str]) -> str:
    valid = [*settings(), *OPEN_MAPPINGS]
    groups = sorted(path.name for path in conf_folder().iterdir() if path.is_dir())
    for override in overrides:
        name = override.lstrip("+~").partition("=")[0]
        known = name in groups or any(v == name or v.startswith(name + ".") for v in valid)
        if known or name.startswith(tuple(f"{prefix}." for prefix in OPEN_MAPPINGS)):
            continue
        near = difflib.get_close_matches(name, [*valid, *groups], n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else " `pipeline settings` lists what there is."
        return f"There is no setting {name!r}.{hint}"
    reasons = [str(error)] + ([str(error.__cause__).splitlines()[0]] if error.__cause__ else [])
    return "The configuration is refused: " + " ".join(" ".join(reasons).split())
