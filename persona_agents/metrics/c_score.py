"""Consistency with the persona, judged by a classifier of natural language inference."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch

from persona_agents.metrics import models
from persona_agents.metrics.base import Ratio, Reply

BATCH_SIZE = 64
REMEMBERED = 1 << 16  # pairs of texts
_ENTAILMENT = ("entail", "蕴含", "蕴涵")
_CONTRADICTION = ("contradict", "矛盾")
_NEGATIONS = ("not", "non", "不")


def label_values(name: str, id2label: dict) -> torch.Tensor:
    """
    What each label of a classifier counts: 1 entailment, -1 contradiction, 0 anything else.

    :raises PersonaAgentsError: if not exactly one label each is entailment and contradiction.
    """

    def positions(words) -> list[int]:
        return [
            int(position)
            for position, label in id2label.items()
            if any(word in str(label).lower() for word in words)
            and not str(label).lower().startswith(_NEGATIONS)
        ]

    entailment, contradiction = positions(_ENTAILMENT), positions(_CONTRADICTION)
    if len(entailment) != 1 or len(contradiction) != 1:
        models.reject_labels(name, id2label.values())
    values = torch.zeros(len(id2label))
    values[entailment[0]], values[contradiction[0]] = 1.0, -1.0
    return values


class Classifier:
    """A classifier of (premise, hypothesis) pairs, and its judgements of the pairs it has seen."""

    def __init__(self, name: str, option: str, device: str):
        self.device = device
        self.tokenizer, self.model = models.load_classifier(name, option)
        self.values = label_values(name, self.model.config.id2label)
        self.signature = models.describe(name, self.model)
        self._seen: dict[tuple[str, str], float] = {}

    def judge(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """1, 0 or -1 for each pair: the value of its most probable label."""
        missing = [pair for pair in dict.fromkeys(pairs) if pair not in self._seen]
        missing.sort(key=lambda pair: len(pair[0]) + len(pair[1]))  # little padding
        found = {}
        for begin in range(0, len(missing), BATCH_SIZE):
            batch = missing[begin : begin + BATCH_SIZE]
            premises, hypotheses = map(list, zip(*batch))
            inputs = self.tokenizer(
                premises, hypotheses, padding=True, truncation=True, return_tensors="pt"
            )
            model = self.model.to(self.device)
            with torch.inference_mode():
                labels = model(**inputs.to(self.device)).logits.argmax(dim=-1).cpu()  # (B,)
            found.update(zip(batch, self.values[labels].tolist()))
        judgements = [found[pair] if pair in found else self._seen[pair] for pair in pairs]
        self._seen.update(found)
        while len(self._seen) > REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return judgements


@cache
def classifier_for(name: str, option: str, device: str) -> Classifier:
    """The process's classifier of this name; raises PersonaAgentsError if it cannot be loaded."""
    return Classifier(name, option, device)


class CScore(Ratio):
    """
    Persona sentences that the reply entails less those that it contradicts, averaged over replies.

    The C-score of Madotto et al. (2019): the reply is the premise, a persona sentence the
    hypothesis. Its range depends on the number of persona sentences. An empty reply scores 0.
    """

    key = "c_score"
    outputs = ("c_score",)

    def __init__(self, classifier: Classifier):
        self.classifier = classifier

    @property
    def signature(self) -> str:
        return (
            f"model:{self.classifier.signature}|premise:reply|hypothesis:persona-sentence"
            "|entailment-contradiction,argmax|sum:sentences|average:reply"
        )

    def applies(self, reply: Reply) -> bool:
        return any(sentence.strip() for sentence in reply.persona)

    def statistics(self, replies: Sequence[Reply]) -> list:
        pairs = [
            [(reply.text, s) for s in reply.persona if s.strip()] if reply.text.strip() else []
            for reply in replies
        ]
        judged = iter(self.classifier.judge([pair for own in pairs for pair in own]))
        return [(sum(next(judged) for _ in own), 1) for own in pairs]
