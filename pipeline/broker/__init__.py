"""Kafka: topics, producer, log reader, and how a run is found.

The only package (with the services' in-process cluster) that imports ``confluent_kafka``.
"""

from pipeline.broker.logs import LinkState
from pipeline.broker.ordered import OrderedReader
from pipeline.broker.producer import Delivery, Producer
from pipeline.broker.reader import LogReader, Place, Record
from pipeline.broker.runs import check_schemas, find_run, list_runs, publish_manifest
from pipeline.broker.settings import BrokerSettings
from pipeline.broker.topics import (
    Topics,
    TopicSpec,
    check_topics,
    ensure_topics,
    runs_topic,
    specs,
    topic_id,
)

__all__ = [
    "BrokerSettings",
    "Delivery",
    "LinkState",
    "LogReader",
    "OrderedReader",
    "Place",
    "Producer",
    "Record",
    "TopicSpec",
    "Topics",
    "check_schemas",
    "check_topics",
    "ensure_topics",
    "find_run",
    "list_runs",
    "publish_manifest",
    "runs_topic",
    "specs",
    "topic_id",
]
