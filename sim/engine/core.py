"""What the parts of a world share."""

from __future__ import annotations

from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.sim.engine.board import JobBoard
from wattkeeper.sim.engine.booking import Booking
from wattkeeper.sim.engine.feasibility import Feasibility
from wattkeeper.sim.engine.node_states import NodeStates, PowerBudget
from wattkeeper.sim.engine.subscriber import Moments
from wattkeeper.sim.kernel.hosting import Host
from wattkeeper.sim.kernel.loop import EventLoop
from wattkeeper.sim.recording.recorder import Recorder


class Core:
    """What the parts of a world share; each changes what it owns by named methods.

    Attributes:
        loop: The event loop of the run.
        cluster: Nodes and GPUs.
        nodes: When nodes are ready.
        budget: The power that jobs may draw.
        room: What fits.
        board: The state of every job.
        booking: Books what attempts used.
        recorder: The records of the run.
        host: Tells policies of jobs.
        subscribers: The parts, by the moments at which they act.
    """

    def __init__(
        self,
        loop: EventLoop,
        cluster: Cluster,
        nodes: NodeStates,
        budget: PowerBudget,
        room: Feasibility,
        board: JobBoard,
        booking: Booking,
        recorder: Recorder,
        host: Host,
        subscribers: Moments,
    ) -> None:
        self.loop = loop
        self.cluster = cluster
        self.nodes = nodes
        self.budget = budget
        self.room = room
        self.board = board
        self.booking = booking
        self.recorder = recorder
        self.host = host
        self.subscribers = subscribers
