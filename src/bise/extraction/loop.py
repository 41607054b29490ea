"""The loop of Algorithm 1: annealing, epochs of mask steps, the best mask on val, and the run's ends."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bise.base.errors import BadInput
from bise.data.core.contract import Log, Progress
from bise.data.core.sampling import Sampler
from bise.engine.checkpoints import Checkpoint
from bise.engine.processes import batch_norm_together
from bise.engine.steps import Steps, check_figures
from bise.extraction.budget import Budget
from bise.extraction.early_stopping import cannot_flip, coast, quiet_epochs
from bise.extraction.head_training import Refinement
from bise.extraction.margins import gives_one_class, may_run_again
from bise.extraction.mask_step import MaskStep
from bise.extraction.outcome import SHORTEST, nothing_better, replaces, too_short
from bise.extraction.problem import Problem
from bise.extraction.state import Best, State
from bise.network.subnetwork import Subnetwork


class Loop:
    """Algorithm 1 from line 3 on; what changes while it runs is its `state`."""

    def __init__(
        self,
        problem: Problem,
        targets: dict[str, float],
        *,
        notes: list[str],
        progress: Progress | None = None,
        log: Log | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.problem, self.targets, self.config = problem, targets, problem.config
        self.progress, self.log, self.checkpoint = progress, log, checkpoint
        self.state = State.at_start(problem)
        self.state.notes = notes
        c = problem.config
        self.step = MaskStep(problem, self.state, targets)
        self.sampler = Sampler(len(problem.cells), problem.strata if c.sampler == "balanced" else None)
        self.refinement = Refinement(problem, self.state.heads)
        self.steps = Steps(self.step, problem.inputs, c.batch_size, state=self.state.tensors_of_a_step, graphs=c.graphs)
        self.taus = c.temperatures()
        self.cuts = problem.cuts
        again = may_run_again(self.config, targets) and problem.validation is not None
        self.label = "extracting, run 1 of at most 2" if again else "extracting"

    def run(self) -> Subnetwork:
        """Anneal τ; before each τ train the heads anew (lines 4 and 13), at each τ learn the masks (lines 5 to 10)."""
        self._go_on()
        self._judge_baseline()
        epoch = len(self.state.history)
        stopped = "the schedule's end"
        for phase, tau in enumerate(self.taus):
            rows = [row for row in self.state.history if row["tau"] == tau]
            if self._epochs_left(rows) > 0:
                self._train_heads(phase, tau)
                if self.state.budget is not None:
                    self.state.budget.price(phase)
            while self._epochs_left(rows) > 0:
                epoch += 1
                rows.append(row := self._epoch(epoch, tau, self._progress(phase, len(rows) + 1)))
                ends = self._epochs_left(rows) <= 0
                self._tell(phase * self.config.upsilon + (self.config.upsilon if ends else len(rows)))
                if closed := self._collapsed():
                    return self._result(epoch - 1, self._undo(closed, epoch, row))
                self.state.last_valid = self.state.scores.snapshot()
                last = ends and tau == self.taus[-1]
                left = [] if last else self._steps_left(rows, phase)
                done = not last and self._within(row) and self._nothing_can_flip(left)
                self._finish_epoch(epoch, row, last=done or last)
                if done:
                    stopped = self._coast(left, epoch)
                    return self._result(epoch, stopped)
                self._save(wanted=ends)
        return self._result(epoch, stopped)

    def _go_on(self) -> None:
        """From the checkpoint, where there is one; the log gets the rows of the epochs before."""
        if self.checkpoint is not None:
            self.state.restore(self.checkpoint)
        if self.log is not None:
            for row in self.state.history:
                self.log(row)

    def _judge_baseline(self) -> None:
        """What the model itself has on val, with which masks compete."""
        state, c = self.state, self.config
        if self.problem.validation is not None and state.baseline_score is None:
            self._validate()
            state.baseline_score = state.judged[c.selection]
            if c.baseline and state.budget is None:  # the model itself exceeds any
                state.best = (state.baseline_score, 0, state.scores.snapshot())
                state.also = {by: (state.judged[by], 0, state.scores.snapshot()) for by in c.also}
        state.begin_epoch()

    # one epoch

    def _train_heads(self, phase: int, tau: float) -> None:
        """Lines 4 and 13, once before each temperature."""
        state, c = self.state, self.config
        self.step.tau.fill_(tau)
        if c.mi == "none" or not c.head_epochs or state.refined > phase:
            return
        state.scores.set_mask()
        with state.clock("head", self.problem.device):
            self.refinement(state.generator, self.progress, f"bias head, τ = {tau:.3g}")
        state.refined = phase + 1
        state.begin_epoch()
        self._save()

    def _epoch(self, epoch: int, tau: float, progress: float) -> dict[str, Any]:
        """One epoch of mask steps (lines 7 to 10), and the budget's; returns its means."""
        c, state, problem = self.config, self.state, self.problem
        before = state.last_valid[0] >= 0
        order = self.sampler.draw(c.steps, c.batch_size, state.generator)
        self._set_modes()
        advice = f"check the inputs' scale, or lower lr (now {c.lr:g})"

        def after(figures: list[Tensor], left: int) -> None:
            if problem.device.type == "cpu":  # a GPU would be waited for
                first = len(figures) - 1
                check_figures(figures[-1][None], order, c.batch_size, epoch=epoch, first=first, advice=advice)
            if left:
                self._save(figures)

        shared = batch_norm_together(problem.sub.network)
        with state.clock("mask steps", problem.device), shared, problem.sub.features() as self.step.caught:
            draws = state.generator if problem.inputs.changing else None
            figures = self.steps.run(order, draws, done=state.done, after=after)
        state.scores.release()
        state.done = None
        check_figures(figures, order, c.batch_size, epoch=epoch, advice=advice)
        if not state.scores.flat.isfinite().all():
            raise BadInput(
                f"the scores became non-finite in epoch {epoch}, though the loss is finite; check the model's"
                f" gradients, or lower lr (now {c.lr:g}) and weight_decay (now {c.weight_decay:g})"
            )
        if epoch == 1 and (stuck := state.scores.untouched()):
            state.notes.append(f"no gradient reaches {', '.join(stuck)}, so nothing there will be closed")
        spent: dict[str, Any] = {}
        if (budget := state.budget) is not None:
            with state.clock("budget", problem.device):
                shares, weight = budget.close(budget.allowed(progress))
            spent = {"budget": shares, "weight": weight}
        loss, ce, mi, head, _ = figures.mean(0).tolist()
        mask = state.scores.flat.detach() >= 0
        flips, kept = int((mask != before).sum()), int(mask.sum())
        losses = {"loss": loss, "cross_entropy": ce, "mutual_information": mi, "head_loss": head}
        return {"epoch": epoch, "tau": tau, **losses, "flips": flips, "open": kept} | spent

    def _set_modes(self) -> None:
        """Everything in eval mode, but for BatchNorm where its statistics are updated."""
        self.problem.sub.eval()
        if self.config.bn != "frozen":
            for module in self.problem.sub.network.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.train()

    def _finish_epoch(self, epoch: int, row: dict[str, Any], *, last: bool) -> None:
        """Validate in its turn and where the network has changed, keep the best, write the row."""
        state, c = self.state, self.config
        state.changed = state.changed or row["flips"] > 0 or c.bn != "frozen"
        if self.problem.validation is not None and (last or epoch % c.validate_every == 0):
            state.scores.set_mask()
            if state.changed:
                self._validate()
            state.changed = False
            row["val"] = state.judged
            if self._within(row):
                state.best = self._better(state.best, c.selection, epoch)
                state.also = {by: self._better(state.also.get(by), by, epoch) for by in c.also}
        state.history.append(row)
        state.begin_epoch()
        if self.log is not None:
            self.log(row)

    def _within(self, row: dict[str, Any]) -> bool:
        """Whether the mask at the end of an epoch keeps to the budget, if there is one."""
        return self.state.budget is None or self.state.budget.fits(row["budget"])

    def _better(self, best: Best | None, selection: str, epoch: int) -> Best:
        """The best so far, or this epoch's mask where it beats it on val, or ties and is to win ties."""
        value = self.state.judged[selection]
        # a mask that does as well as the model itself is the smaller network
        ties = self.config.ties == "later" or (best is not None and best[1] == 0)
        was_constant = best is not None and gives_one_class(self.state.history, best[1])
        constant = bool(self.state.judged.get("constant")), was_constant
        if best is None or replaces(value, best[0], constant=constant, ties=ties):
            return value, epoch, self.state.scores.snapshot()
        return best

    def _validate(self) -> None:
        assert self.problem.validation is not None
        with self.state.clock("evaluation", self.problem.device):
            self.state.judged = self.problem.validation(self.problem.sub, self.progress)

    def _save(self, figures: list[Tensor] | None = None, *, wanted: bool = False) -> None:
        """Write a checkpoint where one is due, or wanted."""
        if self.checkpoint is not None and (wanted or self.checkpoint.due):
            self.state.save(self.checkpoint, figures)

    def _tell(self, done: int) -> None:
        if self.progress is not None:
            self.progress(self.label, done, len(self.taus) * self.config.upsilon)

    # ends

    def _epochs_left(self, rows: list[dict[str, Any]]) -> int:
        """How many more epochs a temperature gets after those in `rows`, if no gate flips in them."""
        c = self.config
        if c.patience is None:
            return c.upsilon - len(rows)
        return min(c.upsilon - len(rows), max(0, c.patience - quiet_epochs(rows)))

    def _progress(self, phase: int, epochs: int) -> float:
        """The part of the schedule that is over after so many epochs of a temperature."""
        return (phase + min(1.0, epochs / self.config.upsilon)) / len(self.taus)

    def _steps_left(self, rows: list[dict[str, Any]], phase: int) -> list[tuple[int, float]]:
        """(steps, τ) of this temperature and those after it."""
        steps = self.config.epoch_steps(len(self.problem.cells))
        left = [(steps * self._epochs_left(rows), self.taus[phase])]
        return left + [(steps * self._epochs_left([]), later) for later in self.taus[phase + 1 :]]

    def _nothing_can_flip(self, left: list[tuple[int, float]]) -> bool:
        """Whether no gate can flip in the steps that are left, so that the run may stop early."""
        c, scores = self.config, self.state.scores
        if not c.early_stop or c.bn != "frozen":
            return False
        return bool(cannot_flip(scores.flat, scores.velocity, scores.raw, left, **self.step.rates).all())

    def _coast(self, left: list[tuple[int, float]], epoch: int) -> str:
        """Let the scores run on to the schedule's end, where no gate will flip; says why the run stopped."""
        scores, steps = self.state.scores, sum(count for count, _ in left)
        scores.flat.copy_(coast(scores.flat, scores.velocity, steps, **self.step.rates))
        self._tell(len(self.taus) * self.config.upsilon)
        return f"epoch {epoch}: no gate can flip any more"

    def _collapsed(self) -> list[str]:
        """The sites that closed wholly, and block every gradient before them."""
        return self.state.scores.closed(self.cuts) if self.config.collapse == "undo" else []

    def _undo(self, closed: list[str], epoch: int, row: dict[str, Any]) -> str:
        """Go back to the last mask without a wholly closed site; says why the run stopped."""
        self.state.scores.restore(self.state.last_valid)
        self.state.notes.append(
            f"{', '.join(closed)} closed wholly in epoch {epoch}, which blocks every gradient before it;"
            f" the run goes back to the mask of epoch {epoch - 1}"
            + (", which is the whole model" if epoch == 1 else "")
            + '. Use collapse="prevent", weights="groups" or a lower lr'
        )
        if self.log is not None:
            self.log(row | {"collapsed": closed})
        if self.progress is not None:
            self.progress(self.label, epoch, epoch)  # there is no more to come
        return f"epoch {epoch}: {', '.join(closed)} closed wholly"

    def _result(self, epoch: int, stopped: str) -> Subnetwork:
        """The subnetwork of the best mask, or of the last one, with the record of how it came about."""
        state, sub, c = self.state, self.problem.sub, self.config
        # with val there is no best mask where the run collapsed before its first validation
        selection: dict[str, Any] = {"kind": "last", "epoch": epoch, "on": None}
        selection["val"] = self.problem.validation is not None
        if state.best is not None:
            value, best_epoch, kept = state.best
            on = f"val, {c.selection}"
            selection = {"kind": "best", "epoch": best_epoch, "on": on, "value": value, "model": state.baseline_score}
            if best_epoch == 0:
                state.notes.append(nothing_better(self.problem, state, value))
            if constant := sum(gives_one_class([row], row["epoch"]) for row in state.history):
                selection["constant"] = constant
            if gives_one_class(state.history, best_epoch):
                state.notes.append(
                    "every mask that was judged gives each sample of val one class, and so does this one; it is no"
                    " classifier to use"
                )
            sub.keep("last", state.scores.by_site())
            for by, (figure, found, snapshot) in state.also.items():
                state.scores.restore(snapshot)
                sub.keep(by, state.scores.by_site())
                selection.setdefault("also", {})[by] = {"epoch": found, "value": figure}
            state.scores.restore(kept)
        spent = {} if state.budget is None else {"budget": self._settled(state.budget, selection)}
        state.scores.set_mask()
        if state.best is None and bool((state.scores.flat >= 0).all()) and (said := too_short(self.problem, SHORTEST)):
            state.notes.append(f"no unit was closed; {said}")
        for parameter in sub.network.parameters():
            parameter.requires_grad_(False)
            parameter.grad = None
        sub.eval()
        sub.record = {
            "selection": selection,
            "stopped": stopped,
            "notes": state.notes,
            "history": state.history,
            "phases": state.seconds,
            "information_over": self.problem.measured_over,
            "targets": self.targets,
            **spent,
        }
        return sub

    def _settled(self, budget: Budget, selection: dict[str, Any]) -> dict[str, Any]:
        """Hold the mask that was selected to the budget once more, as it is measured; judged anew where that cut it."""
        before = self.state.scores.flat >= 0
        shares = budget.settle()
        cut = not torch.equal(before, self.state.scores.flat >= 0)
        if self.problem.validation is not None and cut:
            self.state.scores.set_mask()
            self._validate()
            selection["value"] = self.state.judged[self.config.selection]
        return budget.as_dict(shares) | {"cut": cut}
