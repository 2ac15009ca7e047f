"""The training recipe and the persona's way into the model, for any generator of ParlAI's."""

from __future__ import annotations

import torch
from parlai.core.metrics import GlobalAverageMetric
from parlai.utils.misc import warn_once
from torch import nn

from persona_agents.agents import options, precision, search
from persona_agents.agents.history import PersonaHistory
from persona_agents.agents.schedule import LinearSchedule
from persona_agents.agents.workers import TokenWeights
from persona_agents.checkpoint import read_checkpoint, read_json, seed, without_numpy
from persona_agents.dictionary import WordPieceDictionaryAgent
from persona_agents.errors import PersonaAgentsError

# The paper's training loop, where a command trains.
LOOP_DEFAULTS = {
    "batchsize": 16,
    "num_epochs": 20,
    "validation_every_n_epochs": 1,
    "validation_metric": "ppl",
    "validation_patience": 0,
    "save_after_valid": True,  # an interrupted training goes on from its last epoch
}

# One kernel for all of AdamW's arithmetic, which saves a tenth of a training step. (On a GPU torch's
# own choice is as good.)
FUSED_ON_CPU = torch.__version__ >= (2, 4)


class PersonaRecipe:
    """
    What every agent of this package shares; put it before one of ParlAI's generators.

    Its defaults are the paper's recipe: AdamW in two groups under a linear schedule, batches of 16,
    20 epochs, the best perplexity kept. The input is ``[CLS] persona [SEP] [CLS] query [SEP]``. Seeds,
    half precision, token-weighted updates, resuming and safe checkpoints come with it.
    """

    OPTIMIZERS = ("adamw",)  # those the agent can train with
    SAVED = ()  # options that its build_model stores for whoever loads the model
    _has_trained = False  # whether this process has trained it

    @classmethod
    def add_cmdline_args(cls, parser, partial_opt=None):
        super().add_cmdline_args(parser, partial_opt)
        group = parser.add_argument_group("Training recipe")
        group.add_argument(
            "--pretrained-lr",
            type=float,
            default=7e-6,
            help="Learning rate of parameters that come from a pretrained model; --learningrate is "
            "that of all others.",
        )
        group.add_argument(
            "--warmup-ratio",
            type=float,
            default=0.1,
            help="Share of training in which the learning rates rise linearly from 0.",
        )
        group.add_argument(
            "--dropout", type=float, default=0.1, help="Dropout in encoder and decoder."
        )
        group.add_argument(
            "--validation-generate",
            type="bool",
            default=False,
            help="Generate replies when validating between training steps. Off, these validations "
            "report perplexity and token accuracy only. The evaluation that ends a training, and "
            "eval_model, generate unless --skip-generation is true.",
        )
        precision.add_cmdline_args(group)
        parser.set_defaults(
            optimizer="adamw",
            learningrate=5e-5,
            weight_decay=0.01,
            gradient_clip=1.0,
            lr_scheduler="linear",
            history_size=1,
            truncate=512,  # dynamic batching asks for a number
            label_truncate=128,
            beam_length_penalty=0.65,
        )
        if any(action.dest == "num_epochs" for action in parser._actions):
            parser.set_defaults(**LOOP_DEFAULTS)
        return parser

    @classmethod
    def dictionary_class(cls):
        return WordPieceDictionaryAgent

    @classmethod
    def history_class(cls):
        return PersonaHistory

    def __init__(self, opt, shared=None):
        if shared is None:
            self.saved_opt(opt)  # first, for the options may be another agent's
            self.check_options(opt)
            if opt.get("seed") is not None:  # in every command, so that sampling repeats too
                seed(opt["seed"])
            device = precision.device_of(opt)
            self.precision = precision.Precision(precision.choose(opt, device), device)
        else:
            self.precision = shared["precision"]
        self.token_weights = TokenWeights()
        fp16 = opt.get("fp16", False)
        opt["fp16"] = False  # ParlAI's own would halve the weights and pad the dictionary
        try:
            super().__init__(opt, shared)
        finally:
            opt["fp16"] = fp16
        if fp16:
            self.opt["fp16"] = True
        limit = self._n_positions()
        if limit is not None:
            self.text_truncate = min(self.text_truncate or limit, limit)
            self.label_truncate = min(self.label_truncate or limit, limit)

    @classmethod
    def upgrade_opt(cls, opt_from_disk):
        """ParlAI pads the dictionary of whatever was trained with ``--fp16``; ours never is."""
        opt_from_disk = super().upgrade_opt(opt_from_disk)
        opt_from_disk.pop("force_fp16_tokens", None)
        return opt_from_disk

    def share(self):
        return {**super().share(), "precision": self.precision}

    # -- to be given by each agent ---------------------------------------------------------------

    @classmethod
    def check_options(cls, opt) -> None:
        """Raise PersonaAgentsError for options that cannot be, before anything is built."""
        options.check(opt, cls.OPTIMIZERS)
        precision.choose(opt, precision.device_of(opt))

    def pretrained_parameters(self) -> list[nn.Parameter]:
        """Parameters that learn at ``--pretrained-lr``."""
        return []

    def _n_positions(self) -> int | None:
        """Greatest length of an input and of a response; None where there is none."""
        return None

    @property
    def module(self) -> nn.Module:
        """The model itself, without the wrapper of distributed training."""
        return getattr(self.model, "module", self.model)

    # -- input -----------------------------------------------------------------------------------

    def _set_text_vec(self, obs, history, truncate):
        """Put the encoder's input into the observation; truncation knows persona from query."""
        if "text" not in obs or "text_vec" in obs:
            return obs
        ids, whole = history.encode(truncate)
        if whole > len(ids):
            warn_once(
                f"Some inputs are longer than {truncate} tokens: oldest turns, beginning of the "
                "query and end of the persona are cut, in this order (ctrunc is their share)."
            )
        obs["full_text"] = history.get_history_str()
        obs["text_vec"] = torch.LongTensor(ids)
        obs["full_text_vec"] = obs["text_vec"]
        obs.force_set("context_original_length", whole)
        obs.force_set("context_truncate_rate", whole > len(ids))
        obs.force_set("context_truncated_length", whole - len(ids))
        return obs

    def _get_batch_context(self, batch):
        """
        The words whose n-grams ``--beam-context-block-ngram`` blocks.

        Without [CLS] and [SEP], which close persona and query: blocked, no reply could end.
        """
        context = super()._get_batch_context(batch)  # (B, S)
        special = (context == self.START_IDX) | (context == self.END_IDX)
        return context.masked_fill(special, self.NULL_IDX)

    # -- evaluation ------------------------------------------------------------------------------

    def compute_loss(self, batch, return_output=False):
        """ParlAI's loss and metrics; while training, what :meth:`training_loss` makes of the loss."""
        with self.precision.autocast():
            loss, output = super().compute_loss(batch, return_output=True)
        if self.model.training:
            loss = self.training_loss(batch, loss, output)
        return (loss, output) if return_output else loss

    def training_loss(self, batch, loss: torch.Tensor, output: tuple) -> torch.Tensor:
        """
        The loss to go backward from; perplexity is reported without what a system adds here.

        :param loss: mean -log p per token of the replies.
        :param output: what the model returned.
        """
        return loss

    def eval_step(self, batch):
        """Validating (gold replies at hand) between training steps generates only on demand."""
        wanted = self.skip_generation, self.rank_candidates
        if self.rank_candidates and batch.candidate_vecs is None:
            warn_once("--rank-candidates: the task gives no label candidates, nothing is ranked.")
            self.rank_candidates = False
        validating = self._has_trained and batch.label_vec is not None
        if validating and not self.opt.get("validation_generate"):
            self.skip_generation = True
        try:
            with self.precision.autocast():
                return super().eval_step(batch)
        finally:
            self.skip_generation, self.rank_candidates = wanted

    def _generate(self, batch, beam_size, max_ts, prefix_tokens=None):
        """ParlAI's search, by a faster way where there is one."""
        if not search.is_covered(self, batch, prefix_tokens):
            return super()._generate(batch, beam_size, max_ts, prefix_tokens)
        if search.is_plain_greedy(self, beam_size):
            return search.greedy(self, batch, max_ts)
        return search.by_sample(self, batch, beam_size, max_ts)

    # -- training --------------------------------------------------------------------------------

    def init_optim(self, params, optim_states=None, saved_optim_type=None, is_finetune=False):
        """AdamW over two groups: first the new parameters, then those of a pretrained model."""
        opt = self.opt
        pretrained = {id(parameter) for parameter in self.pretrained_parameters()}
        new = [p for p in params if id(p) not in pretrained]
        old = [p for p in params if id(p) in pretrained]
        groups = [{"params": new, "lr": opt["learningrate"]}]
        if old:
            groups.append({"params": old, "lr": opt["pretrained_lr"]})
        fused = True if FUSED_ON_CPU and not self.use_cuda else None
        self.optimizer = torch.optim.AdamW(
            groups,
            betas=tuple(opt.get("betas") or (0.9, 0.999)),
            eps=opt.get("adam_eps") or 1e-8,
            weight_decay=opt.get("weight_decay") or 0.0,
            fused=fused,
        )
        if is_finetune or not optim_states:
            return is_finetune
        peaks = [group["lr"] for group in groups]
        self.optimizer.load_state_dict(optim_states)
        for group, peak in zip(self.optimizer.param_groups, peaks):
            group["fused"] = fused  # the other machine's torch may have had no such kernel
            if opt.get("lr_scheduler") == "linear":
                group["lr"] = peak  # the schedule sets the rates of the resumed training
        return False

    def build_lr_scheduler(self, states=None, hard_reset=False):
        """``--lr-scheduler linear`` is the paper's schedule; others are ParlAI's own."""
        if self.opt.get("lr_scheduler") != "linear":
            super().build_lr_scheduler(states, hard_reset)
            return
        self.scheduler = LinearSchedule(self.optimizer, self.opt)
        if states and not hard_reset:
            self.scheduler.load_state(states)
        self._number_training_updates = self.scheduler.get_initial_number_training_updates()

    def train_step(self, batch):
        self._has_trained = True
        is_first = self._number_grad_accum == 0
        examples = self.token_weights.see(batch, self.NULL_IDX, is_first)
        if isinstance(self.scheduler, LinearSchedule):
            self.scheduler.see(examples)
        return super().train_step(batch)

    def backward(self, loss, **kwargs):
        """ParlAI's, with every token of an update weighing the same."""
        loss = loss * self.token_weights.weight
        loss = loss * self.opt.get("update_freq", 1)  # ParlAI divides by it
        super().backward(self.precision.scale(loss), **kwargs)

    def update_params(self):
        """ParlAI's; nothing happens before the last batch of an update."""
        if self._number_grad_accum == 0:
            self.precision.unscale(self.optimizer)
            self.token_weights.finish(self.model.parameters())
        super().update_params()

    def report(self):
        """ParlAI's report; while training, with the learning rates of both groups."""
        report = super().report()
        if not self._has_trained:
            report.pop("lr", None)  # a peak that this process never used
            return report
        groups = self.optimizer.param_groups
        if len(groups) > 1:
            report["pretrained_lr"] = GlobalAverageMetric(groups[1]["lr"])
        return report

    # -- checkpoints -----------------------------------------------------------------------------

    def saved_opt(self, opt) -> dict | None:
        """Options stored with the checkpoint that is about to be loaded, None for a new model."""
        path, _ = self._get_init_model(opt, None)
        if path is None:
            return None
        saved = read_json(f"{path}.opt", "the options of this model")
        if any(name not in saved for name in self.SAVED):
            raise PersonaAgentsError(
                f"{path} was trained by {saved.get('model')!r}, not by this agent. Give --model-file "
                "or --init-model another path, or leave out --model to use the agent that trained it."
            )
        return saved

    def save(self, path=None):
        """
        Save the model and the dictionary it was trained with.

        ParlAI leaves a ``.dict`` file that is there alone, but with ``--init-model`` it may be one
        that was built from the new task, and a model must not be read with another dictionary.
        """
        path = path or self.opt.get("model_file")
        if path:
            self.dict.save(f"{path}.dict")
        super().save(path)

    def state_dict(self):
        states = {**super().state_dict(), "grad_scaler": self.precision.state_dict()}
        return {key: s if key == "model" else without_numpy(s) for key, s in states.items()}

    def load(self, path: str):
        """Read a checkpoint; only tensors and plain data are unpickled, never code."""
        states = read_checkpoint(path)
        try:
            self.module.load_state_dict(states["model"])
        except (KeyError, RuntimeError) as error:
            reason = " ".join(str(error).split())  # torch spreads it over many lines
            raise PersonaAgentsError(
                f"{path} does not fit the model that the options describe; it was saved by another "
                f"agent or with other sizes or --copy. {reason}"
            ) from None
        self.precision.load_state_dict(states.get("grad_scaler"))
        return states
