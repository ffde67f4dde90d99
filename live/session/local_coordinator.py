"""The coordinator of a session without a controller: policies in process, their state in a store.

Policies learn from an attempt whose end follows from its batch size: it reached the target, did all
epochs or would have crossed the bound. Leaving the loop early is a miss where there is a target,
and success where there is none; running out of memory is a miss. After another failure, or if the
process died or hung, the recurrence is repeated; the third such attempt in a row at a batch size is
a miss. A miss costs at least its cost bound.
"""

import json
import logging
import math
import uuid
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from wattkeeper.live.host import process_identity
from wattkeeper.live.host.failures import MAX_FAILURES, is_out_of_memory
from wattkeeper.live.session.policy_host import JobPlan, PolicyHost, digest
from wattkeeper.live.session.store import (
    FIRST_S,
    SessionStore,
    ask_for_slice,
    attempts,
    jobs,
    note_slice,
    observations,
    slices_of,
)
from wattkeeper.live.wire.messages import (
    Assignment,
    AttemptResult,
    Cause,
    EpochReport,
    ProfileReport,
)
from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.policies.points.views import Slice
from wattkeeper.policies.profile import Objective
from wattkeeper.sim.attempts.decided import Tuned, Untuned

ATTEMPTS: Final = 20
"""Attempts after which a recurrence is given up."""
CHOSEN: Final = frozenset({"reached", "epochs", "bound", "left"})
"""Causes that follow from what was chosen."""

log = logging.getLogger("wattkeeper.session")


class LocalCoordinator:
    """See `wattkeeper.live.wire.messages.Coordinator` for its methods.

    If the store cannot be reached, the training continues; only its beginning and its end wait for
    the store, and fail if it stays unreachable.

    Args:
        store: The store that all sessions of the job share.
        plan: The job, its choices and devices.
        lease_s: An attempt that does not renew its lease for so long is hung, s.
    """

    def __init__(self, store: SessionStore, plan: JobPlan, lease_s: float = 60.0) -> None:
        self._store, self._plan, self._lease_s = store, plan, lease_s
        self._id = self._new = uuid.uuid4().hex
        self._holder = process_identity.identify()
        self._plan_digest = digest(plan._replace(samples_per_epoch=0.0).to_json())

    def begin(self) -> Assignment:
        """Lease the next attempt, and ask the policies about it."""
        return self._store.run(self._begin, self._lease_s)

    def report_profile(self, report: ProfileReport) -> float | Slice | None:
        """Ask `Tune` for the power limit or a slice, once a report."""
        return self._store.run(lambda db: self._answer(db, report), self._lease_s)

    def report_epoch(self, report: EpochReport) -> bool:
        """Store the progress of the attempt."""
        return self._update(epochs=report.epoch, time_s=report.time_s, energy_j=report.energy_j)

    def renew_lease(self) -> bool:
        """Renew the lease."""
        return self._update()

    def end(self, outcome: AttemptResult) -> None:
        """Store the outcome, and let the policies learn from it."""
        self._store.run(lambda db: self._end(db, outcome), self._lease_s)

    def _update(self, **values: Any) -> bool:
        def write(db: sa.Connection) -> bool:
            own = sa.update(attempts).where(*self._is_own())
            return db.execute(own.values(heard_s=self._store.now_s(db), **values)).rowcount == 1

        try:
            return self._store.run(write, FIRST_S)
        except EnvironmentLacks as error:
            log.warning("the training goes on, though %s", error)
            return True

    def _is_own(self) -> tuple[sa.ColumnElement[bool], ...]:
        a = attempts.c
        return a.id == self._id, a.status == "running", a.holder == self._holder

    def _checkpoint(self, attempt: str) -> Path:
        return self._store.checkpoints / f"{attempt}.state"

    def _begin(self, db: sa.Connection) -> Assignment:
        job = self._store.job(db, self._plan.job)
        own = sa.select(attempts).where(*self._is_own())
        row = db.execute(own).mappings().one_or_none()
        if row is None:
            in_flight = self._end_dead_attempts(db, job)
            row = self._resume(db) or self._decide(db, job, in_flight)
        return self._assign(db, row)

    def _end_dead_attempts(self, db: sa.Connection, job: sa.RowMapping) -> int:
        """End the attempts whose process is gone or silent; the number of those that run."""
        now_s, in_flight = self._store.now_s(db), 0
        running = (attempts.c.job == self._plan.job, attempts.c.status == "running")
        for row in db.execute(sa.select(attempts).where(*running)).mappings().all():
            if process_identity.is_dead(row["holder"]):
                cause: Cause = "crashed"
            elif now_s > row["heard_s"] + row["lease_s"]:
                cause = "hung" if row["epochs"] else "silent"
            else:
                in_flight += 1
                continue
            if any(piece.batch_size is not None for _, piece, _ in slices_of(db, row["id"])):
                cause = "reached"  # these follow the target
            columns = ("epochs", "time_s", "energy_j", "power_limit_w")
            progress = {name: row[name] for name in columns}
            message = f"{row['holder']} had the lease"
            self._close(db, job, row, AttemptResult(cause, **progress, message=message))
        return in_flight

    def _lease_columns(self, db: sa.Connection) -> dict[str, Any]:
        return {
            "status": "running",
            "holder": self._holder,
            "lease_s": self._lease_s,
            "heard_s": self._store.now_s(db),
        }

    def _resume(self, db: sa.Connection) -> sa.RowMapping | None:
        """Take over the first attempt that was stopped; None if there is none."""
        a = attempts.c
        stopped = (a.job == self._plan.job, a.status == "stopped", a.terms == self._plan_digest)
        query = sa.select(attempts).where(*stopped).order_by(a.recurrence, a.attempt).limit(1)
        row = db.execute(query).mappings().one_or_none()
        if row is None:
            return None
        self._id = row["id"]
        values: dict[str, Any] = self._lease_columns(db)
        if not self._checkpoint(self._id).exists():
            values |= {"epochs": 0, "time_s": 0.0, "energy_j": None}
            for number, _, measured in slices_of(db, self._id):
                if measured is not None:
                    note_slice(db, self._id, number, measured._replace(spent_s=0.0, spent_j=0.0))
        update = sa.update(attempts).where(a.id == self._id).values(values).returning(attempts)
        return db.execute(update).mappings().one()

    def _decide(self, db: sa.Connection, job: sa.RowMapping, in_flight: int) -> sa.RowMapping:
        """Begin the next attempt of a recurrence that failed, else a new recurrence."""
        a, name = attempts.c, self._plan.job
        failed = (a.job == name, a.again.is_(True), a.terms == self._plan_digest)
        query = sa.select(attempts).where(*failed).order_by(a.recurrence).limit(1)
        before = db.execute(query).mappings().one_or_none()
        if before is None:
            values = {"recurrence": job["recurrences"] + 1, "attempt": 1}
            count = sa.update(jobs).where(jobs.c.name == name)
            db.execute(count.values(recurrences=values["recurrence"]))
        else:
            values = {"recurrence": before["recurrence"], "attempt": before["attempt"] + 1}
            db.execute(sa.update(attempts).where(a.id == before["id"]).values(again=False))
        values["in_flight"] = in_flight
        self._id = self._new
        host = PolicyHost(self._store, db, job, self._plan, values)
        if before is None:
            host.policies.submitted(host.start.job)
        if before is not None and self._was_lost(db, before):
            decided = host.maker.repeat(host.restore(before))
        else:
            decided = host.maker.decide(host.start)
        host.save()
        limit_w, profile_w = (
            (decided.power_limit_w, ()) if isinstance(decided, Tuned) else (None, decided.profile_w)
        )
        bound = decided.configuration.cost_bound
        row: dict[str, Any] = {
            "id": self._id,
            "job": name,
            "terms": self._plan_digest,
            "plan": self._plan.to_json(),
            "batch_size": decided.batch_size,
            "power_limit_w": limit_w if self._plan.limits_w else None,
            "profile_w": json.dumps(profile_w),
            "cost_bound": None if math.isinf(bound) else bound,
            "epochs": 0,
            "time_s": 0.0,
            "again": False,
            **values,
            **self._lease_columns(db),
        }
        begun = db.execute(sa.insert(attempts).values(row).returning(attempts)).mappings().one()
        if isinstance(decided, Untuned) and decided.slice is not None:
            ask_for_slice(db, self._id, 0, decided.slice)
        return begun

    def _assign(self, db: sa.Connection, row: sa.RowMapping) -> Assignment:
        plan, limit_w = self._plan, row["power_limit_w"]
        asked = slices_of(db, row["id"])
        left = [piece for _, piece, measured in asked if measured is None]
        return Assignment(
            job_id=f"{plan.job}-{row['recurrence']}",
            recurrence=row["recurrence"],
            attempt=row["attempt"],
            batch_size=row["batch_size"],
            default_batch_size=plan.default_batch_size,
            max_epochs=plan.max_epochs,
            power_limit_w=limit_w,
            profile_w=() if limit_w is not None else tuple(json.loads(row["profile_w"])),
            cost_bound=math.inf if row["cost_bound"] is None else row["cost_bound"],
            eta=plan.eta,
            max_power_w=plan.max_power_w * plan.gpus,
            target=plan.target,
            higher_is_better=plan.higher_is_better,
            checkpoint=str(self._checkpoint(row["id"])),
            epochs_done=row["epochs"],
            time_done_s=row["time_s"],
            energy_done_j=row["energy_j"],
            lease_s=self._lease_s,
            slice=left[0] if left else None,
            probes="reached" in plan.tuning.moments,
            samples_per_epoch=plan.samples_per_epoch,
            reports=len(asked) - len(left),
        )

    def _answer(self, db: sa.Connection, report: ProfileReport) -> float | Slice | None:
        """The slice or power limit that follows a report; `Tune` is asked once about each."""
        job = self._store.job(db, self._plan.job)
        spent = sa.update(attempts).where(*self._is_own())
        db.execute(spent.values(time_s=report.time_s, energy_j=report.energy_j))
        own = attempts.c.id == self._id
        row = db.execute(sa.select(attempts).where(own)).mappings().one()
        asked = {number: (piece, found) for number, piece, found in slices_of(db, self._id)}
        if report.report + 1 in asked:  # the answer was lost
            return asked[report.report + 1][0]
        known = asked.get(report.report, (None, None))[1] is not None
        if not report.reached and (known or row["power_limit_w"] is not None):
            return float(row["power_limit_w"] or self._plan.max_power_w)
        if report.reached and known:
            return None
        host = PolicyHost(self._store, db, job, self._plan, row)
        answer = self._ask(db, host, row, report)
        host.save()
        if isinstance(answer, Slice):
            ask_for_slice(db, self._id, report.report + 1, answer)
        elif answer is not None and self._plan.limits_w:
            db.execute(sa.update(attempts).where(own).values(power_limit_w=answer))
        return answer

    def _ask(
        self, db: sa.Connection, host: PolicyHost, row: sa.RowMapping, report: ProfileReport
    ) -> float | Slice | None:
        untuned = host.restore(row)
        for measured in report.measurements:
            note_slice(db, self._id, report.report, measured)
        if report.reached:
            return host.ask_for_other(row)
        assert isinstance(untuned, Untuned)
        decided = host.maker.tune(untuned, report.measurements)
        return decided.power_limit_w if isinstance(decided, Tuned) else decided.slice

    def _end(self, db: sa.Connection, outcome: AttemptResult) -> None:
        job = self._store.job(db, self._plan.job)
        row = db.execute(sa.select(attempts).where(*self._is_own())).mappings().one_or_none()
        if row is not None:
            self._close(db, job, row, outcome)

    def _close(
        self, db: sa.Connection, job: sa.RowMapping, row: sa.RowMapping, outcome: AttemptResult
    ) -> None:
        """End an attempt; it happens once, since the attempt does not run afterwards."""
        new: dict[str, Any] = {
            "epochs": outcome.epochs,
            "time_s": outcome.time_s,
            "energy_j": outcome.energy_j,
        }
        ended = sa.update(attempts).where(attempts.c.id == row["id"])
        if outcome.cause == "stopped":
            db.execute(ended.values(status="stopped", **new))
            return
        try:
            plan = JobPlan.from_json(row["plan"])
        except (InputError, ValueError):  # its policy, or that config, is not installed here
            plan = None
        target = json.loads(row["plan"])["target"]
        done = outcome.cause in {"epochs", "left"} and target is None
        reached = outcome.cause == "reached" or done
        cost = None if plan is None else _cost(plan, outcome)
        learnt = cost is not None and not self._is_accident(db, row, outcome)
        again = not reached and row["attempt"] < ATTEMPTS
        if plan is not None and (learnt or not again):
            host = PolicyHost(self._store, db, job, plan, row)
            if learnt:
                assert cost is not None
                charged = cost
                if not reached and outcome.cause not in {"epochs", "bound"}:
                    charged = max(cost, row["cost_bound"] or 0.0)
                host.observe(row, outcome, charged, reached)
            else:
                host.lose(row)
            host.save()
        self._checkpoint(row["id"]).unlink(missing_ok=True)
        count = sa.update(jobs).where(jobs.c.name == job["name"])
        count = count.values(observed=jobs.c.observed + 1)
        number = db.execute(count.returning(jobs.c.observed)).scalar_one()
        db.execute(ended.values(status="ended", again=again, **new))
        db.execute(
            sa.insert(observations).values(
                attempt_id=row["id"],
                job=job["name"],
                number=number,
                cause=outcome.cause,
                reached=reached,
                learnt=learnt,
                cost=cost,
                limit_set=outcome.limit_set,
                how=outcome.how,
                message=outcome.message,
            )
        )

    def _was_lost(self, db: sa.Connection, row: sa.RowMapping) -> bool:
        """Whether an attempt that ended taught the policies nothing, since it was an accident."""
        o = observations.c
        query = sa.select(o.cause, o.learnt).where(o.attempt_id == row["id"])
        ending = db.execute(query).one()
        return not ending.learnt and ending.cause not in CHOSEN

    def _is_accident(self, db: sa.Connection, row: sa.RowMapping, outcome: AttemptResult) -> bool:
        """Whether the end of an attempt does not follow from its batch size."""
        if outcome.cause in CHOSEN or is_out_of_memory(outcome.message):
            return False
        a, o = attempts.c, observations.c
        query = (
            sa.select(o.learnt)
            .join(attempts, a.id == o.attempt_id)
            .where(a.job == row["job"], a.terms == row["terms"], a.batch_size == row["batch_size"])
            .order_by(o.number.desc())
            .limit(MAX_FAILURES - 1)
        )
        last = db.execute(query).scalars().all()
        return len(last) < MAX_FAILURES - 1 or any(last)


def _cost(plan: JobPlan, outcome: AttemptResult) -> float | None:
    """Cost of an attempt, J; None if it depends on an energy that was not measured."""
    if outcome.energy_j is None and plan.eta > 0 and outcome.epochs:
        return None
    energy_j = outcome.energy_j or 0.0
    return Objective(plan.eta).cost(energy_j, outcome.time_s, plan.max_power_w * plan.gpus)
