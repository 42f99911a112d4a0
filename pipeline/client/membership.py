"""Who takes part in synchronous training, as the learner's heartbeats say it."""

from collections.abc import Sequence

from pipeline.wire import Member


class Membership:
    """This client's place among the run's members. Knows no clock and no connection: it is told, and asked.

    The newest word counts: a state may go back, such as from member to waiting when a learner was started again. A
    session that the learner does not speak of is unknown to it.

    Args:
        session: this client's.
    """

    def __init__(self, session: str) -> None:
        self._session = session
        self._told = False
        self.members: tuple[Member, ...] = ()

    @property
    def own(self) -> Member | None:
        """What the learner says of this client; None: nothing."""
        return next((member for member in self.members if member.session == self._session), None)

    def note(self, members: Sequence[Member]) -> list[str]:
        """Take in what the learner says now.

        Returns:
            A sentence for each client that it has lost since it was heard last.
        """
        before = {member.session for member in self.members if member.state == "lost"}
        lost = [member for member in members if member.state == "lost" and member.session not in before]
        told, self._told, self.members = self._told, True, tuple(members)
        # What was lost before this client came is no news.
        return [self._sentence(member) for member in lost if told]

    def takes_part(self, number: int) -> bool:
        """Whether samples of this version's number count."""
        own = self.own
        return own is not None and own.state == "member" and own.since <= number

    def describe(self) -> str:
        """A sentence on where this client stands."""
        own = self.own
        if own is None:
            return "The learner has said nothing of this client."
        detail = f" ({own.detail})" if own.detail else ""
        if own.state == "member":
            return f"The learner counts this client as a member since version {own.since}{detail}."
        return f"The learner says of this client: {own.state}{detail}."

    def _sentence(self, member: Member) -> str:
        detail = member.detail or "the learner gives no reason"
        if member.session == self._session:
            return f"The learner has lost this client: {detail}. It asks to take part again."
        return f"The learner has lost client {member.actor}: {detail}."
