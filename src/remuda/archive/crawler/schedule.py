"""Whose turn it is: hosts one after the other, each with its delays and its back-off.

The delay is between two requests of one downloader to one host, as ArchiveBot's is, but other hosts are not
slowed down by it: at most `concurrency` requests to a host run or rest at a time.
"""

import math
import random
from collections import deque
from heapq import heappop, heappush

from remuda.archive.crawler.frontier import ClaimedUrl, Frontier, HostQueue
from remuda.archive.crawler.model import CrawlSettings

FIRST_BACK_OFF = 2.0
MAX_BACK_OFF = 300.0
MAX_RETRY_AFTER = 3600.0


class _Host:
    """What politeness needs to know of a host."""

    __slots__ = ("back_off", "blocked_until", "in_flight", "is_listed", "queue", "rests")

    def __init__(self, queue: HostQueue) -> None:
        self.queue = queue
        self.in_flight = 0
        self.rests: list[tuple[float, float]] = []
        """For each downloader that rests: since when, and where between the two delays."""
        self.blocked_until = 0.0
        self.back_off = 0.0
        self.is_listed = False
        """Whether it is among the ready or the sleeping ones."""


class Schedule:
    """Picks URLs. All times are monotonic."""

    def __init__(self, frontier: Frontier, settings: CrawlSettings) -> None:
        self._frontier = frontier
        self._settings = settings
        self._hosts: dict[int, _Host] = {}
        self._ready: deque[_Host] = deque()
        self._sleeping: list[tuple[float, int, _Host]] = []
        self.in_flight = 0

    def apply(self, settings: CrawlSettings) -> None:
        """Delays that are running are measured again by these settings."""
        self._settings = settings
        self._sleeping.clear()
        self._ready.clear()
        for host in self._hosts.values():
            host.is_listed = False
        self.list_hosts(self._frontier.hosts())

    def list_hosts(self, queues: list[HostQueue]) -> None:
        """These hosts have work."""
        for queue in queues:
            host = self._hosts.get(queue.id)
            if host is None:
                host = self._hosts[queue.id] = _Host(queue)
            if not host.is_listed:
                host.is_listed = True
                self._ready.append(host)

    def pick(self, moment: float) -> ClaimedUrl | None:
        """The next URL that may be fetched now; see `next_time` if there is none."""
        while self._sleeping and self._sleeping[0][0] <= moment:
            self._ready.append(heappop(self._sleeping)[2])
        while self._ready:
            host = self._ready[0]
            free_at = self._free_at(host, moment)
            if free_at > moment:
                self._ready.popleft()
                if free_at == math.inf:
                    host.is_listed = False  # Until `release`.
                else:
                    heappush(self._sleeping, (free_at, host.queue.id, host))
                continue
            claim = self._frontier.take(host.queue)
            if claim is None:
                self._ready.popleft()
                host.is_listed = False
                continue
            self._ready.rotate(-1)
            host.in_flight += 1
            self.in_flight += 1
            return claim
        return None

    def next_time(self) -> float | None:
        """When the next host is free; None if that depends on something else."""
        return self._sleeping[0][0] if self._sleeping else None

    def release(self, claim: ClaimedUrl, moment: float, *, has_fetched: bool = True) -> None:
        """This URL is done with; its downloader rests from now on."""
        host = self._hosts[claim.host]
        host.in_flight -= 1
        self.in_flight -= 1
        if has_fetched and self._settings.delay_max > 0:
            host.rests.append((moment, random.random()))
        if not host.is_listed:
            host.is_listed = True
            self._ready.append(host)

    def back_off(self, claim: ClaimedUrl, moment: float, retry_after: float | None) -> float:
        """The host asked for less: nothing more is sent to it for a while. For how long."""
        host = self._hosts[claim.host]
        host.back_off = min(MAX_BACK_OFF, 2 * host.back_off or FIRST_BACK_OFF)
        wait = host.back_off if retry_after is None else min(retry_after, MAX_RETRY_AFTER)
        host.blocked_until = max(host.blocked_until, moment + wait)
        return wait

    def praise(self, claim: ClaimedUrl) -> None:
        """The host answered well: the next back-off is a short one again."""
        self._hosts[claim.host].back_off = 0.0

    def _free_at(self, host: _Host, moment: float) -> float:
        if host.blocked_until > moment:
            return host.blocked_until
        free = self._settings.concurrency - host.in_flight
        if not host.rests:
            return moment if free > 0 else math.inf
        shortest, span = self._settings.delay_min, self._settings.delay_max - self._settings.delay_min
        ends = sorted(since + shortest + at * span for since, at in host.rests)
        if ends[0] <= moment:
            host.rests = [rest for rest in host.rests if rest[0] + shortest + rest[1] * span > moment]
            ends = ends[len(ends) - len(host.rests) :]
        free -= len(ends)
        if free > 0:
            return moment
        return ends[-free] if -free < len(ends) else math.inf
