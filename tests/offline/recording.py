"""A learner that lived through some records without services, and what a verification of it is given."""

from pathlib import Path

from pipeline.learner import DQNTrainingNode
from pipeline.learner.durable.checkpoint import checkpoint_name, save_checkpoint
from pipeline.offline.bounded import Extent
from pipeline.offline.computing import Verifier
from tests.learner.made import Log, feed, lineage_of, node_in, record_of

RECORDS = 30


class Recording:
    """A learner that lived through some records, with a checkpoint at every third version."""

    def __init__(self, folder: Path, every: int = 3, *overrides: str) -> None:
        self.folder, self.overrides = folder, overrides
        self.node = node_in(folder, *overrides)
        self.log = Log({0: [], 1: []})
        self.low = {0: 0, 1: 0}
        self.node.positions = {0: 0, 1: 0}
        self.node.journal.begin(self.node.positions)
        self.node.publish()
        self.every = every
        self.live(RECORDS)

    def live(self, records: int) -> None:
        node = self.node
        for _ in range(records):
            count = sum(map(len, self.log.partitions.values()))
            partition = count % 3 % 2
            offset = len(self.log.partitions[partition])
            record = record_of(node, offset, offset, partition, actor=f"a{partition}")
            self.log.partitions[partition].append(record)
            before = node.version.number
            feed(node, [record])
            if node.version.number > before and node.version.number % self.every == 0 and not node.next_journal().steps:
                self.save()

    def save(self) -> None:
        node = self.node
        assert node.parent is not None
        name = checkpoint_name(node.parent, node.accounting.offsets_advanced)
        save_checkpoint(node.folder.checkpoints / name, node.snapshot())

    def verifier(self) -> Verifier:
        def new_fold(epoch: int) -> DQNTrainingNode:
            fold = node_in(self.folder, *self.overrides)
            fold.enter(0)
            return fold

        held = {p: Extent(self.low[p], len(records)) for p, records in self.log.partitions.items()}
        return Verifier(lineage_of(self.node), new_fold, self.log.at, self.node.folder, held)  # type: ignore[arg-type]

    def check(self, first: int = 0, last: int | None = None):
        verifier = self.verifier()
        versions = verifier.lineage.versions
        wanted = [v for v in versions if first <= v.number <= (versions[-1].number if last is None else last)]
        return verifier.check(wanted)

    def forget(self, partition: int, low: int) -> None:
        """What retention does."""
        self.low[partition] = low
        self.log.partitions[partition] = [r for r in self.log.partitions[partition] if r.offset >= low]
