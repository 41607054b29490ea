"""The loop of Algorithm 1: the state of one run, its steps, its ends, and how it stops and goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from bise.base.errors import BadInput
from bise.data.core.cells import Cells
from bise.data.core.contract import Log, Progress
from bise.data.core.sampling import Sampler, measured_over, sample_weights, strata
from bise.engine.checkpoints import Checkpoint, generator_states
from bise.engine.inference import infer
from bise.engine.inputs import Inputs
from bise.engine.losses import cross_entropies, margins, weighted_mean
from bise.engine.precision import autocast
from bise.engine.steps import Steps, check_figures
from bise.engine.validation import Validation
from bise.extraction.bias_head import BiasHeads, cross_entropy, with_one
from bise.extraction.config import ExtractConfig
from bise.extraction.early_stopping import coast, quiet_epochs, settled
from bise.extraction.head_training import Refinement
from bise.extraction.margins import BY_HEART, chosen_targets
from bise.extraction.objective import information, information_gradient, joint_table
from bise.extraction.scores import Scores, State
from bise.extraction.state import resume, save
from bise.network.gates import Subnetwork
from bise.network.outputs import call, class_logits, wavers
from bise.network.twin import named_tensors

Best = tuple[float, int, State]
"""The figure on val, its epoch, and the mask."""


class Learner:
    """The state of one run: scores, heads, temperature, and the best mask so far."""

    def __init__(
        self,
        sub: Subnetwork,
        inputs: Inputs,
        cells: Cells,
        validation: Validation | None,
        config: ExtractConfig,
        progress: Progress | None,
        log: Log | None,
        budget: int,
        precision: str,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.budget, self.precision, self.checkpoint = budget, precision, checkpoint
        self.sub, self.inputs, self.cells, self.validation, self.config = sub, inputs, cells, validation, config
        self.progress, self.log = progress, log
        self.device = inputs.device
        self.generator = torch.Generator().manual_seed(config.seed)
        self.scores = Scores(sub, self.device)
        self.tau = torch.ones((), dtype=torch.float32, device=self.device)
        self.rates = {"lr": config.lr, "momentum": config.momentum, "weight_decay": config.weight_decay}
        self.learned: list[Tensor] = []
        """β and γ of BatchNorm, where they are learned too."""
        self.batch_norm: torch.optim.SGD | None = None
        if config.bn == "all":
            self.learned = [p.requires_grad_() for name, p in sub.network.named_parameters() if name in sub.owned]
            self.batch_norm = torch.optim.SGD(
                self.learned, lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay
            )
        groups = strata(cells, config.balance)
        self.sampler = Sampler(len(cells), groups if config.sampler == "balanced" else None)
        self.strata = groups
        weights = sample_weights(cells, config.weights, config.balance, config.rho)
        self.weights = None if weights is None else weights.float().to(self.device)
        self.y, self.b = cells.y.to(self.device), cells.b.to(self.device)
        self.priors: list[Tensor] = []
        """What logits are raised by for each b, where margins are wanted."""
        self.targets: dict[str, float] = {}
        """Margin and smoothing, and the share of evenly drawn training samples by which they were chosen."""
        self.over = measured_over(cells, config.mi, config.sampler, config.balance)
        included = cells.conflicting if self.over == "conflicting" else cells.b >= 0
        self.included = included.to(self.device)
        """[N, K]: which samples the mutual information is taken over."""
        self.seconds = {"mask steps": 0.0, "head": 0.0, "evaluation": 0.0}
        self.history: list[dict[str, Any]] = []
        self.alive = self.scores.state()
        """The last mask that lived, at the end of the epoch before."""
        self.refined = 0
        """Annealings before which the heads have been refined."""
        self.generators = {"own": self.generator, "loader": inputs.seeds}
        if validation is not None:
            self.generators["val"] = validation.inputs.seeds
        self.began = generator_states(self.generators)
        """The generators at the start of this epoch, from which its order is drawn."""
        self.done: Tensor | None = None
        """The figures of this epoch's steps that were taken before a stop."""
        self.notes: list[str] = []
        if cells.unknown:
            self.notes.append(
                f"{cells.unknown} of {len(cells)} training samples lack a bias label; they count for"
                " the cross-entropy, and not for the bias head or the mutual information"
            )
        self.notes += cells.unopposed()
        if self.over == "conflicting":
            self.notes += cells.one_sided()
        if validation is not None:
            self.notes += cells.unjudged(validation.cells)
        self.itself: float | None = None
        """What the model itself, all gates open, has on val."""
        self.best: Best | None = None
        self.also: dict[str, Best] = {}
        """The best by other selections."""
        self.judged: dict[str, float] = {}
        self.changed = True
        """Whether the network is another one than at the last validation."""
        with autocast(self.precision, self.device):
            self.cuts = self.scores.cuts(inputs.example()) if config.collapse == "undo" else []
        self.stopped = "the schedule's end"

    # the loop

    def run(self) -> Subnetwork:
        """Algorithm 1 from line 3 on."""
        c = self.config
        taus = c.temperatures()
        total = len(taus) * c.upsilon
        for count in {min(n, len(self.cells)) for n in (3, 4)}:  # a sequence-first layer can't fit both
            seen = infer(
                self.sub,
                self.inputs,
                index=torch.arange(count),
                features=self.sub.bottleneck,
                precision=self.precision,
            )
        z = seen.z
        assert z is not None
        with autocast(self.precision, self.device):
            wavering = wavers(self.sub, self.inputs.example())
        if wavering:
            self.notes.append(wavering)
        judged = self.validation is not None
        self.targets = chosen_targets(c, self.sub, self.inputs, self.cells, self.strata, self.precision, val=judged)
        self.priors = margins(self.cells, self.targets["margin"], seen.logits.shape[1], self.device)
        self.heads = BiasHeads(
            z.shape[1],
            self.cells.bias_classes,
            lr=c.head_lr,
            momentum=c.head_momentum,
            weight_decay=c.head_weight_decay,
            generator=self.generator,
            device=self.device,
            complete=self.cells.unknown == 0,
        )
        self.refinement = Refinement(self.heads, self.inputs, self.cells, self.strata, c, self.precision, self.budget)
        self.steps = Steps(self._update, self.inputs, c.batch_size, state=self._changing, graphs=c.graphs)
        resume(self)
        if self.validation is not None and self.itself is None:
            with self._clock("evaluation"):
                self.judged = self.validation(self.sub, self.progress)
            self.itself = self.judged[c.selection]
            if c.baseline:
                self.best = (self.itself, 0, self.scores.state())
                self.also = {by: (self.judged[by], 0, self.scores.state()) for by in c.also}
        epoch = len(self.history)
        for phase, tau in enumerate(taus):
            rows = [row for row in self.history if row["tau"] == tau]
            if self._left(rows) == 0:
                continue
            self.tau.fill_(tau)
            if c.mi != "none" and c.head_epochs and self.refined <= phase:
                self._refine(phase, tau)
            while self._left(rows) > 0:
                epoch += 1
                rows.append(row := self._epoch(epoch, tau))
                ends = self._left(rows) == 0
                if self.progress is not None:
                    self.progress("extracting", phase * c.upsilon + (c.upsilon if ends else len(rows)), total)
                if c.collapse == "undo" and (closed := self.scores.closed(self.cuts)):
                    self._undo(closed, epoch, row)
                    return self._result(epoch - 1)
                self.alive = self.scores.state()
                steps = c.epoch_steps(len(self.cells))
                left = [(steps * self._left(rows), tau)]
                left += [(steps * self._left([]), later) for later in taus[phase + 1 :]]
                last = ends and tau == taus[-1]
                done = c.early_stop and c.bn == "frozen" and not last and self._settled(left)
                self._finish_epoch(epoch, row, last=done or last)
                if self.checkpoint is not None and (self.checkpoint.due or ends) and not done:
                    save(self)
                if done:
                    self._coast(left, epoch)
                    if self.progress is not None:
                        self.progress("extracting", total, total)
                    return self._result(epoch)
        return self._result(epoch)

    def _left(self, rows: list[dict[str, Any]]) -> int:
        """How many more epochs a temperature gets after those in `rows`, if no gate flips in them."""
        c = self.config
        if c.patience is None:
            return c.upsilon - len(rows)
        return min(c.upsilon - len(rows), max(0, c.patience - quiet_epochs(rows)))

    def _refine(self, phase: int, tau: float) -> None:
        """Lines 4 and 12."""
        self.scores.set_mask()
        with self._clock("head"):
            self.refinement(self.sub, self.generator, self.progress, f"bias head, τ = {tau:.3g}")
        self.refined = phase + 1
        self.began = generator_states(self.generators)
        if self.checkpoint is not None and self.checkpoint.due:
            save(self)

    def _epoch(self, epoch: int, tau: float) -> dict[str, Any]:
        """One epoch of mask steps (lines 7 to 10); returns its means."""
        c = self.config
        before = self.alive[0] >= 0
        order = self.sampler.draw(c.steps, c.batch_size, self.generator)
        self.sub.eval()
        if c.bn != "frozen":
            for module in self.sub.network.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.train()
        advice = f"check the inputs' scale, or lower lr (now {c.lr:g})"

        def after(figures: list[Tensor], left: int) -> None:
            if self.device.type == "cpu":  # a GPU would be waited for
                first = len(figures) - 1
                check_figures(figures[-1][None], order, c.batch_size, epoch=epoch, first=first, advice=advice)
            if self.checkpoint is not None and left and self.checkpoint.due:
                save(self, figures)

        with self._clock("mask steps"), self.sub.features() as self.caught:
            draws = self.generator if self.inputs.changing else None
            figures = self.steps.run(order, draws, done=self.done, after=after)
        self.scores.release()
        self.done = None
        check_figures(figures, order, c.batch_size, epoch=epoch, advice=advice)
        means = figures.mean(0).tolist()
        if not self.scores.flat.isfinite().all():
            raise BadInput(
                f"the scores became non-finite in epoch {epoch}, though the loss is finite; check the model's"
                f" gradients, or lower lr (now {c.lr:g}) and weight_decay (now {c.weight_decay:g})"
            )
        if epoch == 1 and (stuck := self.scores.untouched()):
            self.notes.append(f"no gradient reaches {', '.join(stuck)}, so nothing there will be closed")
        loss, ce, mi, head, _ = means
        mask = self.scores.flat.detach() >= 0
        return {
            "epoch": epoch,
            "tau": tau,
            "loss": loss,
            "cross_entropy": ce,
            "mutual_information": mi,
            "head_loss": head,
            "flips": int((mask != before).sum()),
            "open": int(mask.sum()),
        }

    def _update(self, x: Any, index: Tensor) -> Tensor:
        """Update the scores to minimise J and the heads to minimise their cross-entropy.

        Returns the four losses, and the size of J's gradient.
        """
        c = self.config
        values = self.scores.hold()
        with autocast(self.precision, self.device):
            logits = class_logits(call(self.sub, x))
        z, b = self.caught[0], self.b[index]
        each = cross_entropies(
            logits, self.y[index], b=b if self.priors else None, priors=self.priors, smoothing=self.targets["smoothing"]
        )
        ce = weighted_mean(each, None if self.weights is None else self.weights[index])
        if not (ce.requires_grad or z.requires_grad):
            raise BadInput("no gradient reaches any gate; the model's forward must not run under torch.no_grad()")
        features = with_one(z)
        probabilities = self.heads.probabilities(features)
        mi, towards_z = self._information(probabilities, b, index)
        outputs, towards = [ce], [torch.ones_like(ce)]
        if z.requires_grad:  # γ·I joins the graph at z, by its closed-form gradient
            outputs, towards = [ce, z], [*towards, (c.gamma * towards_z).to(z.dtype)]
        wanted = [values, *self.learned]
        gradient, *others = torch.autograd.grad(outputs, wanted, towards, allow_unused=True)
        if gradient is None:
            raise BadInput("no gradient reaches any gate; the model's forward must not run under torch.no_grad()")
        if self.batch_norm is not None:
            for parameter, found in zip(self.learned, others, strict=True):
                parameter.grad = found
            self.batch_norm.step()
        self.caught[0] = z.detach()  # the graph behind it would live on into a recording, with another stream
        self.scores.step(gradient, self.tau, **self.rates)
        if c.collapse == "prevent":
            self.scores.keep_open()
        true = self.heads.one_hots(b)
        self.heads.step(features, true, probabilities)
        ce = ce.detach()
        return torch.stack([ce + c.gamma * mi, ce, mi, cross_entropy(probabilities, true), gradient.norm()])

    def _changing(self) -> Iterator[Tensor]:
        """Every tensor that a step changes."""
        yield from (self.scores.flat, self.scores.velocity, self.scores.raw)
        yield from (self.heads.parameters, self.heads.velocity)
        everything = named_tensors(self.sub.network)
        yield from (everything[name] for name in self.sub.owned)
        if self.batch_norm is not None:
            for state in self.batch_norm.state.values():
                yield from (value for value in state.values() if isinstance(value, Tensor))

    def _information(self, probabilities: tuple[Tensor, ...], b: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """I(b̂, b), the mean or sum over biases, and its gradient towards z [N, d]; 0 where it isn't wanted."""
        weight = self.heads.parameters[:, :-1]
        if self.config.mi == "none":
            return weight.new_zeros(()), weight.new_zeros(len(b), weight.shape[1])
        include = self.included[index]
        values, towards = [], []
        for k, p in enumerate(probabilities):
            table, count = joint_table(p, b[:, k], include[:, k])
            values.append(information(table, count))
            towards.append(information_gradient(p, b[:, k], include[:, k], table, count))
        share = len(values) if self.config.mi_over_biases == "mean" else 1
        return torch.stack(values).sum() / share, torch.cat(towards, 1) @ weight / share

    # ends of epochs and of the run

    def _finish_epoch(self, epoch: int, row: dict[str, Any], *, last: bool) -> None:
        """Validate in its turn and where the network has changed, keep the best, write the row."""
        self.changed = self.changed or row["flips"] > 0 or self.config.bn != "frozen"
        if self.validation is not None and (last or epoch % self.config.validate_every == 0):
            self.scores.set_mask()
            if self.changed:
                with self._clock("evaluation"):
                    self.judged = self.validation(self.sub, self.progress)
            self.changed = False
            row["val"] = self.judged
            self.best = self._better(self.best, self.config.selection, epoch)
            self.also = {by: self._better(self.also.get(by), by, epoch) for by in self.config.also}
        self.history.append(row)
        self.began = generator_states(self.generators)
        if self.log is not None:
            self.log(row)

    def _better(self, best: Best | None, selection: str, epoch: int) -> Best:
        """The best so far, or this epoch's mask where it beats it on val, or ties and is to win ties."""
        value = self.judged[selection]
        # a mask that does as well as the model itself is the smaller network
        ties = self.config.ties == "later" or (best is not None and best[1] == 0)
        if best is None or value > best[0] or (ties and value == best[0]):
            return value, epoch, self.scores.state()
        return best

    def _settled(self, left: list[tuple[int, float]]) -> bool:
        """Whether no gate can flip in the steps that are left."""
        scores = self.scores
        return bool(settled(scores.flat, scores.velocity, scores.raw, left, **self.rates).all())

    def _coast(self, left: list[tuple[int, float]], epoch: int) -> None:
        """Let the scores run on to the schedule's end, where no gate will flip."""
        steps = sum(count for count, _ in left)
        self.scores.flat.copy_(coast(self.scores.flat, self.scores.velocity, steps, **self.rates))
        self.stopped = f"epoch {epoch}: no gate can flip any more"

    def _undo(self, closed: list[str], epoch: int, row: dict[str, Any]) -> None:
        """Go back to the last mask that lived, and say so."""
        self.scores.restore(self.alive)
        self.stopped = f"epoch {epoch}: {', '.join(closed)} closed wholly"
        self.notes.append(
            f"{', '.join(closed)} closed wholly in epoch {epoch}, which blocks every gradient before it;"
            f" the run goes back to the mask of epoch {epoch - 1}"
            + (", which is the whole model" if epoch == 1 else "")
            + '. Use collapse="prevent", weights="groups" or a lower lr'
        )
        if self.log is not None:
            self.log(row | {"collapsed": closed})
        if self.progress is not None:
            self.progress("extracting", epoch, epoch)  # there is no more to come

    def _result(self, epoch: int) -> Subnetwork:
        """The subnetwork of the best mask, or of the last one, with the record of how it came about."""
        # with val there is no best mask where the run collapsed before its first validation
        selection: dict[str, Any] = {"kind": "last", "epoch": epoch, "on": None, "val": self.validation is not None}
        if self.best is not None:
            value, best_epoch, kept = self.best
            on = f"val, {self.config.selection}"
            selection = {"kind": "best", "epoch": best_epoch, "on": on, "value": value, "model": self.itself}
            if best_epoch == 0:
                self.notes.append(self._nothing_better(value))
            self.sub.keep("last", self._by_site())
            for by, (figure, found, state) in self.also.items():
                self.scores.restore(state)
                self.sub.keep(by, self._by_site())
                selection.setdefault("also", {})[by] = {"epoch": found, "value": figure}
            self.scores.restore(kept)
        self.scores.set_mask()
        for parameter in self.sub.network.parameters():
            parameter.requires_grad_(False)
            parameter.grad = None
        self.sub.eval()
        self.sub.record = {
            "selection": selection,
            "stopped": self.stopped,
            "notes": self.notes,
            "history": self.history,
            "phases": self.seconds,
            "information_over": self.over,
            "targets": self.targets,
        }
        return self.sub

    def _by_site(self) -> dict[str, Tensor]:
        """{site: scores} as they are now."""
        return {site.name: piece for site, _, piece in self.scores.pieces(self.scores.flat.detach())}

    def _nothing_better(self, value: float) -> str:
        """That the model itself was the best on val, and what to look at."""
        name = self.config.selection
        found = [row["val"][name] for row in self.history if "val" in row]
        against = f"{max(found):.1%} against {value:.1%}" if found else f"{value:.1%}"
        said = (
            f"no mask was as good on val as the model itself ({name} {against}), so nothing is closed; `last` has the"
            " last mask, and baseline=False (--no-baseline) selects among masks alone"
        )
        if value >= BY_HEART:
            said += "; if the model was trained on samples of val, give others, since it may know these by heart"
        return said

    @contextmanager
    def _clock(self, phase: str) -> Iterator[None]:
        """Add the seconds while open to a phase of the run; a GPU is waited for, once a phase."""
        start = time.perf_counter()
        yield
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()  # others may be at work beside it
        self.seconds[phase] += time.perf_counter() - start
