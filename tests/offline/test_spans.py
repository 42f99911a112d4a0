"""Which offsets made which versions."""

import dataclasses

import pytest

from pipeline.errors import ReplayError
from pipeline.offline.ranges import ALL, Range
from pipeline.offline.spans import announced, beginning_of, of_versions
from tests.offline.made import FakeLearner, FakeLog


@pytest.fixture
def learner() -> FakeLearner:
    log = FakeLog()
    for sequence in range(20):
        log.add(sequence % 2, sequence)
    learner = FakeLearner(log)
    for zero, one in ((2, 1), (2, 3), (6, 9)):
        learner.read(0, zero)
        learner.read(1, one)
        learner.publish()
    return learner


def test_the_samples_of_some_versions(learner: FakeLearner):
    assert of_versions(learner.lineage, Range(1, 1), "samples") == {0: (0, 2), 1: (0, 1)}
    assert of_versions(learner.lineage, Range(2, 3), "samples") == {0: (2, 6), 1: (1, 9)}
    assert of_versions(learner.lineage, Range(3, None), "samples") == {0: (2, 6), 1: (3, 9)}
    assert of_versions(learner.lineage, ALL, "samples") == {0: (0, 6), 1: (0, 9)}
    assert of_versions(learner.lineage, ALL, "commands") == {}


def test_where_versions_begin(learner: FakeLearner):
    versions = learner.lineage.versions
    assert beginning_of(learner.lineage, versions[0]) == {0: 0, 1: 0}
    assert beginning_of(learner.lineage, versions[2]) == {0: 2, 1: 1}


def test_versions_that_there_are_not(learner: FakeLearner):
    assert [record.number for record in announced(learner.lineage, Range(2, 99))] == [2, 3]
    with pytest.raises(ReplayError, match=r"no version in 7\.\.9; announced are 0\.\.3"):
        announced(learner.lineage, Range(7, 9))


def test_a_version_without_a_journal_is_named(learner: FakeLearner):
    lineage = learner.lineage
    lineage.versions[1] = dataclasses.replace(lineage.versions[1], journal=None)
    with pytest.raises(ReplayError, match=r"1\.1 was published without a journal"):
        of_versions(lineage, Range(1, 1), "samples")
