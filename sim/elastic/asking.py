"""Asks `Replan` about an elastic job: the one path of simulated and of live trainings."""

from __future__ import annotations

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.replan import ElasticView, Replan, Reshape, check_reshape
from wattkeeper.sim.kernel.hosting import BoundPolicy


def ask_replan(bound: BoundPolicy, view: ElasticView) -> Reshape | None:
    """The answer of a `Replan` policy.

    Raises:
        PolicyError: If it is none for the nodes, or there is none though the job needs a shape.
    """
    replan: Replan = bound.policy
    try:
        answer = replan.replan(bound.ctx, view)
        if answer is not None:
            check_reshape(answer, view)
    except BaseException as error:
        raise bound.ctx.explain_failure(error, replan.replan, f"job {view.job_id}") from None
    if answer is None and view.moment != "gained":
        raise PolicyError(
            f"job {view.job_id} has {view.nodes} nodes and gets no shape, though it has none in "
            f"force ({view.moment})",
            "replan",
        )
    return answer


def seen_of(view: ElasticView) -> tuple[object, ...]:
    """What a policy was shown, as the journal has it."""
    slow = (view.slowdown,) if view.slowdown != 1 else ()
    return view.moment, view.held, view.spare, view.mean_loss_s, *slow


def describe_answer(answer: Reshape | None) -> str:
    """An answer of `Replan` as the journal has it."""
    if answer is None:
        return "as before"
    shape = answer.shape
    commits = f" commit_steps={shape.commit_steps} write_s={shape.write_s:g}" * (
        shape.commit_steps != 1 or shape.write_s > 0
    )
    interim = " interim" * answer.is_interim
    return f"nodes={shape.nodes} rate={shape.rate:g} pause_s={answer.pause_s:g}{commits}{interim}"
