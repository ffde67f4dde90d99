"""A flow network with lower and upper bounds in integers, whose flow is kept between changes."""

from __future__ import annotations

from mypy_extensions import i64

UNBOUNDED = 1 << 60


def connect_events(before: tuple[tuple[int, ...], ...]) -> tuple[list[int], list[int]]:
    """Tails and heads of the arcs between the events of instructions.

    Instruction i starts at node 2 i and ends at node 2 i + 1, and its arc has the number i; then
    come the arcs from those that it waits for. The two last nodes are source and sink, before and
    behind all.
    """
    count = len(before)
    tail = [2 * index for index in range(count)]
    head = [2 * index + 1 for index in range(count)]
    last = [True] * count
    for index in range(count):
        for other in before[index]:
            last[other] = False
            tail.append(2 * other + 1)
            head.append(2 * index)
        if not before[index]:
            tail.append(2 * count)
            head.append(2 * index)
    for index in range(count):
        if last[index]:
            tail.append(2 * index + 1)
            head.append(2 * count + 1)
    return tail, head


class FlowNetwork:
    """Arcs with bounds, and a flow.

    An arc is two links: 2 arc along it, on which more can flow up to the upper bound, and
    2 arc + 1 against it, on which less can flow down to the lower bound.

    Attributes:
        tail: Node at which each arc starts.
        head: Node at which it ends.
        low: Lower bound of its flow, 0 at first.
        high: Upper bound, 0 at first.
        flow: Its flow, 0 at first.
        excess: By node, what flows in beyond what flows out, once no flow was feasible.
        incident: Arcs by node.
        open: By link, whether its flow can change; `refresh` brings it up to date.
        reached: By node, whether the last search got there.
        queue: The nodes of the last search, in their order.
    """

    def __init__(self, nodes: int, tail: list[int], head: list[int]) -> None:
        self.tail = tail
        self.head = head
        self.low = [0] * len(tail)
        self.high = [0] * len(tail)
        self.flow = [0] * len(tail)
        self.excess = [0] * nodes
        self.incident: list[list[int]] = [[] for _ in range(nodes)]
        self.links: list[list[int]] = [[] for _ in range(nodes)]
        """Links by the node at which they start."""
        self.target: list[int] = []
        """Node at which each link ends."""
        for arc in range(len(tail)):
            self.incident[tail[arc]].append(arc)
            self.incident[head[arc]].append(arc)
            self.links[tail[arc]].append(2 * arc)
            self.links[head[arc]].append(2 * arc + 1)
            self.target += [head[arc], tail[arc]]
        self.open = [False] * (2 * len(tail))
        self.reached = [False] * nodes
        self.via = [-1] * nodes
        """By reached node, the link by which the search came."""
        self.queue: list[int] = []

    def refresh(self, arc: i64) -> None:
        """Open or close the links of an arc whose flow or bounds were set."""
        flow: i64 = self.flow[arc]
        self.open[2 * arc] = flow < self.high[arc]
        self.open[2 * arc + 1] = flow > self.low[arc]

    def search(self, source: i64, sinks: list[bool]) -> i64:
        """Search for the nearest node of some over open links; -1 if there is none.

        Args:
            source: Where the search starts.
            sinks: By node, whether it is looked for.
        """
        self.reached = [False] * len(self.reached)
        self.reached[source] = True
        self.queue = [source]
        return self.expand_queue(sinks)

    def expand_queue(self, sinks: list[bool]) -> i64:
        """Continue the breadth-first search from the queued nodes; -1 if it finds no sink."""
        links, target, is_open = self.links, self.target, self.open
        reached, via, queue = self.reached, self.via, self.queue
        done: i64 = 0
        while done < len(queue):
            for link in links[queue[done]]:
                if is_open[link]:
                    other = target[link]
                    if not reached[other]:
                        reached[other] = True
                        via[other] = link
                        queue.append(other)
                        if sinks[other]:
                            return other
            done += 1
        return -1

    def room(self, source: i64, node: i64, most: i64) -> i64:
        """How much more can flow on the path that the search found, up to `most`."""
        while node != source:
            link: i64 = self.via[node]
            arc = link >> 1
            if link & 1:
                most = min(most, self.flow[arc] - self.low[arc])
            else:
                most = min(most, self.high[arc] - self.flow[arc])
            node = self.target[link ^ 1]
        return most

    def push(self, source: i64, node: i64, amount: i64) -> None:
        """Let an amount flow on the path that the search found."""
        while node != source:
            link: i64 = self.via[node]
            arc = link >> 1
            self.flow[arc] += -amount if link & 1 else amount
            self.refresh(arc)
            node = self.target[link ^ 1]

    def make_feasible(self) -> bool:
        """Bring the flow within new bounds, all nodes balanced; whether there is such a flow.

        If there is none, more must flow into the nodes that were `reached` than can flow out.
        """
        nodes = len(self.reached)
        excess = self.excess
        for arc in range(len(self.flow)):
            change: i64 = max(self.low[arc] - self.flow[arc], 0)
            change += min(self.high[arc] - self.flow[arc], 0)
            if change:
                self.flow[arc] += change
                excess[self.head[arc]] += change
                excess[self.tail[arc]] -= change
            self.refresh(arc)
        short = [item < 0 for item in excess]
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
        sinks = [False] * len(self.reached)
        sinks[sink] = True
        while self.search(source, sinks) >= 0:
            self.push(source, sink, self.room(source, sink, UNBOUNDED))
