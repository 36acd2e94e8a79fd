"""One stream's queue in every lane, as a fluid of work served in the order it came."""

from __future__ import annotations

import numpy as np

from scaling.capacity import Floats, Ints
from scaling.replay.traffic import Stream


class Queue:
    """Work is in replica-seconds at full capacity C. Arrays are [1 + steps, lanes], at the edges of the steps.

    `arrived` is all work that has come by an edge, first tries and retries; `done` is how far into it the queue is,
    by serving or by giving up. First come, first served: who arrived as work x is done when `done` reaches x, so the
    two curves hold every wait exactly. `served` is the part of `done` that was served.
    """

    def __init__(
        self,
        stream: Stream,
        work: Floats,
        *,
        lanes: int,
        step_s: float,
        hold_steps: Ints,
        retry_share: float,
        retry_delay_s: float,
        may_fail: bool,
    ) -> None:
        self.stream, self.work = stream, work
        # Lists, since a step reads single numbers of them.
        self.hold_steps: list[int] = hold_steps.tolist()
        self._came = np.concatenate([[0.0], np.cumsum(work)])
        shape = (len(self._came), lanes)
        self._patience = None if np.isinf(stream.timeout_s) else max(1, int(np.ceil(stream.timeout_s / step_s)))
        self._retry_share = retry_share
        self.retries = retry_share > 0 and (self._patience is not None or may_fail)
        self.arrived: Floats = np.broadcast_to(self._came[:, None], shape)
        if self.retries:
            self.arrived = np.zeros(shape)
        self.done: Floats = np.zeros(shape)
        self.served: Floats = self.done if self._patience is None else np.zeros(shape)
        self.drops: list[tuple[int, Floats]] = []
        self.dropped, self.failed, self.retried = np.zeros(lanes), np.zeros(lanes), np.zeros(lanes)
        self._again_at: set[int] = set()
        self._again = np.zeros((int(np.ceil(retry_delay_s / step_s)) + 2, lanes))

    def in_flight(self, edge: int) -> Floats:
        """Work begun and not finished at an edge, [lanes]."""
        held: Floats = self.served[edge] - self.served[max(edge - self.hold_steps[max(edge - 1, 0)], 0)]
        return held

    def serve(self, step: int, capacity: Floats, room: Floats | None) -> Floats:
        """Serve one step with `capacity` (work, [lanes]), to at most `room` work in flight; returns what was served."""
        edge, before, done = step + 1, self.done[step], self.done[step + 1]
        if self.retries:
            if step in self._again_at:
                self._again_at.discard(step)
                again = self._again[step % len(self._again)]
                self.retried += again
                again[:] = 0
            np.add(self.retried, self._came[edge], out=self.arrived[edge])
        np.add(before, capacity, out=done)
        if room is not None:
            # What began `hold_steps` ago is finished by this edge and leaves its place.
            held = self.served[step] - self.served[max(edge - self.hold_steps[step], 0)]
            room = np.maximum(room - held, 0.0)
            np.minimum(done, np.add(before, room, out=room), out=done)
        np.minimum(done, self.arrived[edge], out=done)
        used: Floats = done - before
        if self._patience is not None:
            np.add(self.served[step], used, out=self.served[edge])
            if edge > self._patience:
                self._give_up(step, edge - self._patience)
        return used

    def _give_up(self, step: int, oldest: int) -> None:
        done, patient = self.done[step + 1], self.arrived[oldest]
        if np.count_nonzero(patient > done):
            given_up = np.maximum(patient - done, 0.0)
            np.maximum(done, patient, out=done)
            self.dropped += given_up
            self.drops.append((step + 1, given_up))
            self._come_again(step, given_up)

    def fail(self, step: int, work: Floats) -> None:
        """Work in flight is lost with its replica."""
        self.failed += work
        self._come_again(step, work)

    def _come_again(self, step: int, work: Floats) -> None:
        if self.retries:
            at = step + len(self._again) - 1
            self._again[at % len(self._again)] += work * self._retry_share
            self._again_at.add(at)
