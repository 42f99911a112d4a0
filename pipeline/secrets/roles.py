"""Who may do what, on Kafka and on the store. The table in ``docs/security.md`` says the same in words.

Nobody but the set-up may create, alter or delete anything on the broker.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.broker import Topics
from pipeline.broker.access import Grant

CLIENT = "client"


@dataclass(frozen=True)
class Rights:
    """What a role may do in the runs that it is for.

    Attributes:
        read, write: topics of a run, by the last word of their names; ``runs`` is the namespace's.
        leads: whether it announces the run's versions: its transactional id, and the topics' settings to check.
        objects: what it may do with the run's weights: ``get``, ``put``, ``delete``.
        lists: whether it may list the run's weights.
    """

    read: tuple[str, ...]
    write: tuple[str, ...] = ()
    leads: bool = False
    objects: tuple[str, ...] = ()
    lists: bool = False


RIGHTS: Mapping[str, Rights] = {
    CLIENT: Rights(
        read=("runs", "versions", "progress"), write=("samples", "episodes", "heartbeats"), objects=("get",)
    ),
    "learner": Rights(
        # Its own progress, read back, is how it knows that the broker carries any; its trackers show the telemetry.
        read=("runs", "samples", "episodes", "versions", "commands", "heartbeats", "progress", "telemetry"),
        write=("runs", "versions", "progress", "dead-letters"),
        leads=True,
        objects=("get", "put"),
    ),
    "telemetry": Rights(read=("runs", "episodes", "versions", "commands", "progress"), write=("telemetry", "commands")),
    "offline": Rights(
        read=(
            "runs",
            "samples",
            "episodes",
            "versions",
            "commands",
            "heartbeats",
            "progress",
            "telemetry",
            "dead-letters",
        ),
        objects=("get",),
    ),
    "cleanup": Rights(read=("runs", "versions"), objects=("delete",), lists=True),
    "operator": Rights(read=("runs", "versions", "heartbeats", "progress", "telemetry"), write=("commands",)),
}


def grants(role: str, user: str, topics: Topics) -> set[Grant]:
    """What a user in a role may do on the broker, for one run.

    Args:
        role: a key of `RIGHTS`.
        user: its name there.
        topics: of the run.
    """
    rights = RIGHTS[role]
    found = {Grant("group", user, "read")}
    found |= {Grant("topic", topic_name(topics, word), "read") for word in rights.read}
    found |= {Grant("topic", topic_name(topics, word), "write") for word in rights.write}
    if rights.leads:
        found.add(Grant("transactional id", transactional_id(topics), "write"))
        # It looks whether all of the run's topics are as they should be.
        found |= {Grant("topic", spec.name, "describe") for spec in topics.specs()}
        found |= {Grant("topic", spec.name, "describe settings") for spec in topics.specs()}
    return found


def belongs(grant: Grant, topics: Topics) -> bool:
    """Whether a right is one of a run, not of its namespace or of another run."""
    return grant.name == transactional_id(topics) or grant.name in {spec.name for spec in topics.specs()} - {
        topics.runs
    }


def topic_name(topics: Topics, word: str) -> str:
    """A topic's full name by its last word."""
    return str(getattr(topics, word.replace("-", "_")))


def transactional_id(topics: Topics) -> str:
    """Under which a run's learner announces versions."""
    return f"{topics.namespace}.{topics.run}"
