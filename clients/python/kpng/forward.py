"""Keeps a node from going back to an older state when it follows several watchers."""

from __future__ import annotations

import random
import time
from typing import Callable, Optional

from kpng.localv1 import api_pb2
from kpng.view import StreamError


class OlderState(StreamError):
    """The watcher offers a state that may be older than the one of the node. Another watcher may have a newer one."""


def position_of(mark: api_pb2.EmptyOp) -> Optional[api_pb2.Position]:
    """Returns the position of a state; None if the watcher cannot tell."""
    if not mark.HasField("Position"):
        return None
    result = api_pb2.Position()
    result.CopyFrom(mark.Position)
    result.Source = result.Source or mark.Instance
    # Without a version of its own, a state is known to be current up to its last change.
    result.CurrentServices = max(result.CurrentServices, result.Services)
    result.CurrentSlices = max(result.CurrentSlices, result.Slices)
    result.CurrentNodes = max(result.CurrentNodes, result.Nodes)
    return result


def relate(offered: Optional[api_pb2.Position], held: Optional[api_pb2.Position]) -> str:
    """Returns how an offered state relates to the held one.

    - covers: the offered state is not older.
    - behind: the offered state may be older for at least one kind.
    - foreign: the offered state comes from another cluster.
    - unrelated: a position is unknown, or counts the revisions of one watcher.
    """
    if offered is None or held is None:
        return "unrelated"
    if offered.Source != held.Source:
        if not (_is_kube(offered.Source) and _is_kube(held.Source)):
            return "unrelated"
        # A watcher that may not read the cluster's identity is assumed to serve the same cluster.
        if offered.Source != "kube" and held.Source != "kube":
            return "foreign"
    is_behind = (
        offered.CurrentServices < held.Services
        or offered.CurrentSlices < held.Slices
        or offered.CurrentNodes < held.Nodes
    )
    return "behind" if is_behind else "covers"


def _is_kube(source: str) -> bool:
    return source == "kube" or source.startswith("kube:")


class Gate:
    """Admits only states that are not older than the held one.

    A state in doubt is refused until all offers have been in doubt for `accept_after` seconds; then the best offered
    state is accepted. The gate outlives streams. Used by one thread.
    """

    def __init__(self, accept_after: float = 60.0, now: Callable[[], float] = time.monotonic) -> None:
        self.accept_after = accept_after
        self._now = now
        self._held: Optional[api_pb2.Position] = None
        # The series of refusals ends when nothing has been offered for twice `accept_after`.
        self._first_refusal = self._last_refusal = self._best_at = float("-inf")
        self._best = (False, False, 0)

    def admit(self, offered: Optional[api_pb2.Position], is_stale: bool, is_same: bool) -> None:
        """Takes an offered state, or raises OlderState. `is_same` says that the node already has this state."""
        relation = relate(offered, self._held)
        if offered is None or relation == "unrelated" or (relation == "covers" and not is_stale):
            self._take(offered)
            return
        if is_same:
            # The node keeps its own position, which is higher.
            self._take(self._held)
            return
        now = self._now()
        if not self._is_recent(self._last_refusal, now):
            self._first_refusal = now
        self._last_refusal = now
        # Better is a state of a watcher that is not stale, of the same cluster, with higher versions.
        versions = offered.CurrentServices + offered.CurrentSlices + offered.CurrentNodes
        rank = (not is_stale, relation != "foreign", versions)
        is_best = not self._is_recent(self._best_at, now) or rank >= self._best
        if is_best and now - self._first_refusal >= self.accept_after:
            self._take(offered)
            return
        if is_best:
            self._best, self._best_at = rank, now
        texts = [" ".join(str(one).split()) for one in (offered, self._held)]
        raise OlderState(f"the watcher offers a state that may be older: {{{texts[0]}}} after {{{texts[1]}}}")

    def retry_delay(self, delay: float) -> float:
        """Shortens a delay while states are refused, so that one is accepted soon after `accept_after`.

        A random part is added, because after an etcd restore all nodes wait for the same moment.
        """
        now = self._now()
        if not self._is_recent(self._best_at, now):
            return delay
        remaining = max(0.0, self._first_refusal + self.accept_after - now)
        return min(delay, remaining + random.random() * self.accept_after / 10)

    def _take(self, position: Optional[api_pb2.Position]) -> None:
        self._held = position
        self._first_refusal = self._last_refusal = self._best_at = float("-inf")

    def _is_recent(self, at: float, now: float) -> bool:
        return now - at <= 2 * self.accept_after
