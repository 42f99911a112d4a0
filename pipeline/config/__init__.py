"""Every setting of the pipeline, with a sentence each, and how a configuration is loaded.

The dataclasses are Hydra structured configs: the files under ``conf/`` give the values, these give the types. A
misspelt key or a wrong type is refused at launch, with the nearest valid name.
"""

from pipeline.config.algorithm import AlgorithmConfig, PPOConfig, SyncConfig
from pipeline.config.documentation import documentation
from pipeline.config.environment import EnvironmentConfig
from pipeline.config.loading import from_dict, load_config, settings, to_dict
from pipeline.config.roles import (
    CleanUpConfig,
    ClientConfig,
    CommandConfig,
    DemoConfig,
    LearnerConfig,
    ReplayConfig,
    TelemetryConfig,
)
from pipeline.config.services import KafkaConfig, SecretsConfig, ServicesConfig, StoreConfig
from pipeline.config.tree import PipelineConfig

__all__ = [
    "AlgorithmConfig",
    "CleanUpConfig",
    "ClientConfig",
    "CommandConfig",
    "DemoConfig",
    "EnvironmentConfig",
    "KafkaConfig",
    "LearnerConfig",
    "PPOConfig",
    "PipelineConfig",
    "ReplayConfig",
    "SecretsConfig",
    "ServicesConfig",
    "StoreConfig",
    "SyncConfig",
    "TelemetryConfig",
    "documentation",
    "from_dict",
    "load_config",
    "settings",
    "to_dict",
]
