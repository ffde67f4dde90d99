"""Networks of NAS-Bench-201 as ModelKeeper's authors exported them to ONNX."""

from __future__ import annotations

from wattkeeper.policies.matching.graph import SOURCE, Graph, Node, Tensor

WIDTH, CELLS, CLASSES = 16, 5, 10
STAGES = 3


class _Exported:
    """The exporter merges equal nodes without weights: two branches share one activation."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.known: dict[Node, int] = {}

    def __call__(self, op: str, *inputs: int, shape: tuple[int, ...] = ()) -> int:
        node = Node(op, inputs, (Tensor(f"{len(self.nodes)}", "weight", shape),) if shape else ())
        if node not in self.known or SOURCE in inputs:
            self.known[node] = len(self.nodes)
            self.nodes.append(node)
        return self.known[node]

    def block(self, at: int, inputs: int, outputs: int, kernel: int) -> int:
        at = self("Conv", self("Relu", at), shape=(outputs, inputs, kernel, kernel))
        return self("BatchNormalization", at, shape=(outputs,))

    def edge(self, op: str, at: int, width: int) -> int:
        match op:
            case "none":
                return self("Mul", at)
            case "skip_connect":
                return at
            case "avg_pool_3x3":
                return self("AveragePool", at)
            case "nor_conv_1x1" | "nor_conv_3x3":
                return self.block(at, width, width, int(op[-1]))
        raise ValueError(op)

    def cell(self, arch: str, at: int, width: int) -> int:
        nodes = [at]
        for node in arch.split("+"):
            total = None
            for edge in node.strip("|").split("|"):
                op, source = edge.split("~")
                one = self.edge(op, nodes[int(source)], width)
                total = one if total is None else self("Add", total, one)
            assert total is not None
            nodes.append(total)
        return nodes[-1]

    def reduction(self, at: int, width: int) -> int:
        body = self.block(self.block(at, width, 2 * width, 3), 2 * width, 2 * width, 3)
        shortcut = self("Conv", self("AveragePool", at), shape=(2 * width, width, 1, 1))
        return self("Add", shortcut, body)


def nasbench201(arch: str) -> Graph:
    """The network of a cell such as ``|a~0|+|b~0|c~1|+|d~0|e~1|f~2|``."""
    to = _Exported()
    at = to("Conv", SOURCE, shape=(WIDTH, 3, 3, 3))
    at = to("BatchNormalization", at, shape=(WIDTH,))
    for stage in range(STAGES):
        if stage:
            at = to.reduction(at, WIDTH << stage - 1)
        for _ in range(CELLS):
            at = to.cell(arch, at, WIDTH << stage)
    last = WIDTH << STAGES - 1
    at = to("GlobalAveragePool", to("Relu", to("BatchNormalization", at, shape=(last,))))
    shape = to("Concat", to("Unsqueeze", SOURCE), to("Unsqueeze", SOURCE))
    to("Gemm", to("Reshape", at, shape), shape=(CLASSES, last))
    return Graph(arch, tuple(to.nodes))
