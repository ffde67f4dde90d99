"""Runs parent and child, which says what of the function the child has, and checks claims.

A claim is proven on the operators of eval mode. Running both models also finds what such a proof
cannot see: outputs that a module has in train mode alone, or a fault of the proof.
"""

import math
from collections.abc import Sequence

from torch import Tensor, nn

from wattkeeper.live.weight_transfer.body_search import compare_body, search_body
from wattkeeper.live.weight_transfer.model_graph import TracedModule
from wattkeeper.live.weight_transfer.program.tracing import Inputs
from wattkeeper.live.weight_transfer.report import (
    CLAIMS,
    FROM_PARENT,
    Found,
    Precision,
    TransferReport,
    Verification,
)
from wattkeeper.live.weight_transfer.running import relative_difference, run, tolerance, vary_inputs
from wattkeeper.policies.errors import cut_message


def check_claims(
    report: TransferReport,
    parent: TracedModule,
    child: TracedModule,
    inputs: Inputs,
    *,
    always: bool,
) -> TransferReport:
    """Run both models, and withdraw each claim of a kept function, or body, that does not hold.

    In train mode, dropout and other draws of zeros and ones are replaced by their mean. Example
    inputs that are constant or hold no values are replaced by random ones. The modules are copied,
    and do not change.

    Args:
        report: What the transfer proved.
        parent: The parent.
        child: The child, filled.
        inputs: Inputs that both were traced with.
        always: Whether to run both even if the report claims nothing.
    """
    if report.kept not in CLAIMS and not always:
        return report
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    probes = vary_inputs(given, (parent.program, child.program))
    verification = verify(report, parent, child, probes)
    report = report.model_copy(update={"verification": verification})
    if report.kept == "all but the head" and verification.found not in CLAIMS:
        return report.model_copy(update={"heads": None})
    if report.kept != "all":
        return report
    lost = "" if verification.found == "all" else _explain(verification)
    lost_in_eval = (lost,) if lost else ()
    if report.preserved_in_train and not lost:
        lost = _find_loss_in_train(parent.module, child.module, probes, verification.precision)
    lost_in_train = (*report.lost_in_train, *([lost] if lost else []))
    return report.model_copy(update={"lost_in_eval": lost_in_eval, "lost_in_train": lost_in_train})


def verify(
    report: TransferReport, parent: TracedModule, child: TracedModule, inputs: Sequence[Tensor]
) -> Verification:
    """What of the parent's function the child has when both run in eval mode."""
    why_not = ""
    precisions: tuple[Precision, ...] = ("float64", "as given")
    for precision in precisions:
        try:
            return _verify(report, parent, child, inputs, precision, why_not)
        except Exception as error:
            reason = (str(error).strip().splitlines() or [""])[0]
            why_not = cut_message(f"{type(error).__name__}: {reason}", 200)
    return Verification(
        found="not run",
        proven=report.kept,
        difference=None,
        tolerance=tolerance(parent.module, child.module),
        precision="as given",
        reason=f"a model cannot run on the example inputs: {why_not}",
    )


def _verify(
    report: TransferReport,
    parent: TracedModule,
    child: TracedModule,
    inputs: Sequence[Tensor],
    precision: Precision,
    reason: str,
) -> Verification:
    limit = tolerance(parent.module, child.module)
    gap = _largest_gap(*(run(each.module, inputs, precision) for each in (parent, child)))
    found: Found = "all" if gap is not None and gap <= limit else "neither"
    if found != "all" and report.kept != "all":
        if report.heads is None:
            filled = {item.name for item in report.tensors if item.status in FROM_PARENT}
            body = search_body(parent, child, inputs, precision, filled=filled, limit=limit)
        else:
            modules = parent.module, child.module
            body = compare_body(*modules, report.heads, inputs, precision, limit=limit)
        if body is not None and body <= limit:
            found, gap = "all but the head", body
    return Verification(
        found=found,
        proven=report.kept,
        difference=gap if gap is not None and math.isfinite(gap) else None,
        tolerance=limit,
        precision=precision,
        reason=reason,
    )


def _largest_gap(expected: Sequence[Tensor], found: Sequence[Tensor]) -> float | None:
    """Largest relative difference of outputs; None if they are of other shapes."""
    if [item.shape for item in expected] != [item.shape for item in found]:
        return None
    return max(map(relative_difference, found, expected), default=0.0)


def _explain(verification: Verification) -> str:
    """Why a run does not confirm that the function is kept."""
    if verification.found == "not run":
        return f"it could not be checked: {verification.reason}"
    if verification.difference is None:
        return "the child's outputs have other shapes than the parent's when both run, or none"
    return (
        f"outputs differ by {verification.difference:.2g} of the largest when both run "
        f"(allowed: {verification.tolerance:.1g})"
    )


def _find_loss_in_train(
    parent: nn.Module, child: nn.Module, inputs: Sequence[Tensor], precision: Precision
) -> str:
    """Why the function is not kept in train mode when both run; empty if it is."""
    try:
        outputs = [run(each, inputs, precision, train=True) for each in (parent, child)]
    except Exception as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        return "it could not be checked: " + cut_message(f"{type(error).__name__}: {reason}", 200)
    gap, limit = _largest_gap(*outputs), tolerance(parent, child)
    if gap is None:
        return "the child's outputs have other shapes than the parent's when both run"
    if gap <= limit:
        return ""
    return f"outputs differ by {gap:.2g} of the largest when both run (allowed: {limit:.1g})"
