"""The threads whose first post was deleted while the agent worked; in memory, and bounded."""

from __future__ import annotations

from collections import OrderedDict

from threadline.errors import ThreadlineError
from threadline_slack.inbound.decide import Place

__all__ = ["Deleted", "QuestionDeleted"]

_MANY = 10_000


class QuestionDeleted(ThreadlineError):
    """The thread's first post is gone, so there is nowhere to answer."""

    code = "question_deleted"
    status = 410


class Deleted:
    """The places of which Slack said that they are gone.

    ``looks``: before the first post of each turn Slack is asked. Slack lets apps of one workspace
    read threads often enough for that, and those that many install hardly ever.
    """

    def __init__(self, *, looks: bool = False) -> None:
        self.looks = looks
        self._places: OrderedDict[Place, None] = OrderedDict()
        self._looked: OrderedDict[tuple[Place, str | None], None] = OrderedDict()

    def due(self, place: Place, turn_id: str | None) -> bool:
        """Tell whether Slack is to be asked about a thread, and remember that it was."""
        if not self.looks or place.root is None or (place, turn_id) in self._looked:
            return False
        self._looked[place, turn_id] = None
        while len(self._looked) > _MANY:
            self._looked.popitem(last=False)
        return True

    def add(self, place: Place) -> None:
        """Remember a thread that is gone."""
        self._places[place] = None
        while len(self._places) > _MANY:
            self._places.popitem(last=False)

    def discard(self, place: Place) -> None:
        """Forget it: somebody goes on there."""
        self._places.pop(place, None)

    def __contains__(self, place: Place) -> bool:
        """Tell whether a thread is known to be gone."""
        return place in self._places
