"""A flow network with lower and upper bounds in integers, whose flow is kept between changes."""

from __future__ import annotations

from mypy_extensions import i64

UNBOUNDED = 1 << 60


class FlowNetwork:
    """Arcs with bounds, and a flow.

    Attributes:
        tail: Node at which each arc starts.
        head: Node at which it ends.
        low: Lower bound of its flow, 0 at first.
        high: Upper bound, 0 at first.
        flow: Its flow, 0 at first.
        reached: By node, whether the last search got there.
    """

    def __init__(self, nodes: int, tail: list[int], head: list[int]) -> None:
        self.tail = tail
        self.head = head
        self.low = [0] * len(tail)
        self.high = [0] * len(tail)
        self.flow = [0] * len(tail)
        self.incident: list[list[int]] = [[] for _ in range(nodes)]
        for arc in range(len(tail)):
            self.incident[tail[arc]].append(arc)
            self.incident[head[arc]].append(arc)
        self.reached = [False] * nodes
        self.via = [-1] * nodes
        """By reached node, the arc by which the search came."""
        self.queue: list[int] = []

    def search(self, source: i64, sinks: list[bool]) -> i64:
        """Search for the nearest node of some over arcs with capacity left; -1 if there is none.

        Args:
            source: Where the search starts.
            sinks: By node, whether it is looked for.
        """
        self.reached = [False] * len(self.incident)
        self.reached[source] = True
        self.queue = [source]
        return self.go_on(0, sinks)

    def go_on(self, done: i64, sinks: list[bool]) -> i64:
        """Search on from the nodes of the queue, of which some are done."""
        tail, head, flow = self.tail, self.head, self.flow
        low, high, reached, via, queue = self.low, self.high, self.reached, self.via, self.queue
        while done < len(queue):
            node: i64 = queue[done]
            done += 1
            for arc in self.incident[node]:
                other: i64 = head[arc]
                if other == node:
                    other = tail[arc]
                    if reached[other] or flow[arc] <= low[arc]:
                        continue
                elif reached[other] or flow[arc] >= high[arc]:
                    continue
                reached[other] = True
                via[other] = arc
                if sinks[other]:
                    return other
                queue.append(other)
        return -1

    def room(self, source: i64, node: i64, most: i64) -> i64:
        """How much more can flow on the path that the search found, up to `most`."""
        while node != source:
            arc: i64 = self.via[node]
            if self.head[arc] == node:
                most = min(most, self.high[arc] - self.flow[arc])
                node = self.tail[arc]
            else:
                most = min(most, self.flow[arc] - self.low[arc])
                node = self.head[arc]
        return most

    def push(self, source: i64, node: i64, amount: i64) -> None:
        """Let an amount flow on the path that the search found."""
        while node != source:
            arc: i64 = self.via[node]
            if self.head[arc] == node:
                self.flow[arc] += amount
                node = self.tail[arc]
            else:
                self.flow[arc] -= amount
                node = self.head[arc]

    def make_feasible(self) -> bool:
        """Bring the flow within the bounds, all nodes balanced; whether there is such a flow."""
        nodes = len(self.incident)
        excess = [0] * nodes
        short = [False] * nodes
        for arc in range(len(self.flow)):
            change: i64 = max(self.low[arc] - self.flow[arc], 0)
            change += min(self.high[arc] - self.flow[arc], 0)
            if change:
                self.flow[arc] += change
                excess[self.head[arc]] += change
                excess[self.tail[arc]] -= change
        for node in range(nodes):
            short[node] = excess[node] < 0
        for source in range(nodes):
            while excess[source] > 0:
                sink = self.search(source, short)
                if sink < 0:
                    return False
                amount = self.room(source, sink, min(excess[source], -excess[sink]))
                self.push(source, sink, amount)
                excess[source] -= amount
                excess[sink] += amount
                short[sink] = excess[sink] < 0
        return True

    def maximise(self, source: i64, sink: i64) -> None:
        """Let as much flow as can; `reached` is then the source side of the smallest cut."""
        sinks = [False] * len(self.incident)
        sinks[sink] = True
        while self.search(source, sinks) >= 0:
            self.push(source, sink, self.room(source, sink, UNBOUNDED))
