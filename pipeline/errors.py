"""Every error this package raises on purpose.

    PipelineError
    ├── ConfigError                   a setting is unknown, of the wrong type or out of range
    ├── SpaceError                    an observation or action space that cannot be carried
    ├── InvalidRecordError            bytes from the wire that are refused (carries a RejectReason)
    ├── ServiceError                  an embedded or local service did not start or stop
    │   └── MissingToolError          Java, Maven or Go is not installed
    ├── BrokerError
    │   ├── BrokerUnreachableError    nobody answers at the address
    │   ├── BrokerAuthenticationError wrong user or password, or no permission
    │   ├── UnknownTopicError         a topic does not exist
    │   ├── TopicMismatchError        a topic exists with other settings than the run needs
    │   ├── TopicReplacedError        a topic was deleted and made again under a run
    │   ├── FencedError               another process took the run over; this one must stop
    │   ├── QueueFullError            the producer's bounded queue takes nothing more right now
    │   └── DeliveryError             a record was not acknowledged in time
    ├── StoreError
    │   ├── StoreUnreachableError     the object store does not answer
    │   ├── StoreAccessError          the object store refuses the credentials or the operation
    │   ├── WeightsNotFoundError      no object under the announced key
    │   ├── WeightsExistError         the write-once key is already taken
    │   └── WeightsCorruptError       size or sha256 differ from what was announced
    ├── RunNotFoundError              no manifest for the run on the runs topic
    ├── ClientError
    │   ├── ConnectorClosedError      the connector was used after close()
    │   ├── InvalidSampleError        a pushed sample does not fit the run's spaces
    │   ├── RunEndedError             the run is over: nothing is learned from this client any more
    │   └── ServerTimeoutError        the learner did not answer in time
    ├── CommandError                  a command to the learner was refused or not confirmed
    ├── ReplayError                   what is asked of a recorded run cannot be given
    └── LearnerError
        ├── CheckpointError           a checkpoint is missing, damaged or of another run
        └── RecoveryError             the state before a restart cannot be reached again

Foreign exceptions are translated once, in the adapter that meets them, with ``raise … from``.
"""

from enum import Enum


class PipelineError(Exception):
    """Base of all errors that this package raises on purpose."""


class ConfigError(PipelineError):
    """A setting is unknown, has the wrong type, or is out of range."""


class SpaceError(PipelineError):
    """An observation or action space that the wire format cannot carry."""


class RejectReason(Enum):
    """Why a record was refused; the value is the metric label and the dead letter's reason."""

    NOT_OURS = "not-ours"
    OVERSIZE = "oversize"
    UNKNOWN_SCHEMA = "unknown-schema"
    WRONG_SCHEMA = "wrong-schema"
    CUT_SHORT = "cut-short"
    TRAILING_BYTES = "trailing-bytes"
    MALFORMED = "malformed"
    BAD_HEADERS = "bad-headers"
    WRONG_RUN = "wrong-run"
    HEADER_MISMATCH = "header-mismatch"
    FORGED = "forged"
    BAD_SEGMENTS = "bad-segments"
    MISSING_COLUMN = "missing-column"
    UNKNOWN_COLUMN = "unknown-column"
    WRONG_SHAPE = "wrong-shape"
    NOT_FINITE = "not-finite"
    OUT_OF_BOUNDS = "out-of-bounds"


class InvalidRecordError(PipelineError):
    """Bytes from the wire that are refused.

    Attributes:
        reason: what rule was broken.
        detail: a sentence with the figures.
    """

    def __init__(self, reason: RejectReason, detail: str) -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.detail = detail


class ServiceError(PipelineError):
    """An embedded or local service did not start, answer or stop."""


class MissingToolError(ServiceError):
    """A tool that the local services are made with (Java, Maven, Go) is not installed."""


class BrokerError(PipelineError):
    """Something went wrong between this process and Kafka."""


class BrokerUnreachableError(BrokerError):
    """No broker answers at the configured address."""


class BrokerAuthenticationError(BrokerError):
    """The broker refuses the user, the password, or the operation."""


class UnknownTopicError(BrokerError):
    """A topic does not exist on the broker."""


class TopicMismatchError(BrokerError):
    """A topic exists with settings that differ from what the run needs."""


class TopicReplacedError(BrokerError):
    """A topic was deleted and made again: offsets of the run mean other records now."""


class FencedError(BrokerError):
    """Another process has taken the run over; this one must stop."""


class QueueFullError(BrokerError):
    """The producer's bounded queue takes nothing more right now; poll and try again."""


class DeliveryError(BrokerError):
    """A record was not acknowledged in time; whether the log holds it is unknown."""


class StoreError(PipelineError):
    """Something went wrong between this process and the object store."""


class StoreUnreachableError(StoreError):
    """The object store does not answer."""


class StoreAccessError(StoreError):
    """The object store refuses the credentials or the operation."""


class WeightsNotFoundError(StoreError):
    """There is no object under the announced key."""


class WeightsExistError(StoreError):
    """The write-once key is already taken."""


class WeightsCorruptError(StoreError):
    """Size or sha256 of the fetched object differ from the announcement."""


class RunNotFoundError(PipelineError):
    """The runs topic has no manifest for the run."""


class ClientError(PipelineError):
    """Something went wrong in a client's connector."""


class ConnectorClosedError(ClientError):
    """The connector was used after ``close()``."""


class InvalidSampleError(ClientError):
    """A pushed sample does not fit the run's observation or action space."""


class RunEndedError(ClientError):
    """The run is over; nothing is learned from this client any more."""


class ServerTimeoutError(ClientError):
    """The learner did not answer within the time-out."""


class CommandError(PipelineError):
    """A command to the learner was refused, or not confirmed in time."""


class ReplayError(PipelineError):
    """What is asked of a recorded run cannot be given: no such range, or the log no longer holds it."""


class LearnerError(PipelineError):
    """The learner cannot go on."""


class CheckpointError(LearnerError):
    """A checkpoint is missing, damaged, or belongs to another run."""


class RecoveryError(LearnerError):
    """The state that the newest announced version was made from cannot be reached again."""
