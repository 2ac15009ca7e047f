"""
Where each word of a reply comes from, as a field of the reply's message.

The finished reply is run through the decoder once more (teacher forcing), so this works after any
search, and costs nothing when it is not asked for.

An agent takes part by putting :class:`Provenance` before its other base classes, a model by having

    explain(encoded, ys) -> copy.Explanation

where ``encoded`` is what its ``encoder`` returns and ``ys`` (B, T) are replies that end in [SEP].
:func:`persona_agents.models.copy.explain` computes it from the parts of the mixture.

The field is plain data, safe for JSON:

    {"persona": ["i have a cat."],            sentences as the model was given them
     "query": ["any pets?"],                  turns, oldest first
     "tokens": [{"token": "cat", "text": "cat", "start": 9, "end": 12,    place in the reply's text
                 "probability": 0.93,                                     what the model used, ...
                 "generated": 0.01, "query": 0.0, "persona": 0.92,        ... the sum of these
                 "p_gen": 0.03, "beta": 0.01, "gamma": 0.99,              the gates
                 "sources": [{"from": "persona", "sentence": 0, "start": 9, "end": 12,
                              "text": "cat", "probability": 0.92}]}, ...],
     "spans": [{"text": "cat", "start": 9, "end": 12, "from": "persona", "sentence": 0,
                "share": 0.99}, ...]}

The last token is the end of the reply, with empty text. A span is a run of tokens whose greatest
part is the same ("generated", "query" or "persona", and the same sentence; "sentence" is null when
it was generated); its share is the mean of that part's share of the probability.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from persona_agents.errors import PersonaAgentsError
from persona_agents.models.copy import Explanation

DIGITS = 7  # of probabilities in messages and logs
NEGLIGIBLE = 5e-8  # what these digits do not show
NUMBERS = ("probability", "generated", "query", "persona", "p_gen", "beta", "gamma")
NOT_COPYING = "this model was trained with --copy none: it generates every word and copies none."


class Texts(NamedTuple):
    """What the encoder's input was made of."""

    persona: tuple[str, ...]
    query: tuple[str, ...]  # turns, oldest first


class Position(NamedTuple):
    """The place of one input word in persona or query."""

    part: str  # "persona" or "query"
    sentence: int
    start: int  # in characters of the sentence
    end: int

    def describe(self, texts: Texts) -> dict:
        text = getattr(texts, self.part)[self.sentence][self.start : self.end]
        return {
            "from": self.part,
            "sentence": self.sentence,
            "start": self.start,
            "end": self.end,
            "text": text,
        }


def positions(ids: list[int], texts: Texts, dictionary) -> list[Position | None]:
    """
    Which word each input position holds; None for special tokens and padding.

    :param ids: an input ``[CLS] persona [SEP] [CLS] turn [SEP] … [SEP]``, of which truncation may
        have taken the end of the persona and the beginning of the turns.
    """
    start_id, end_id = dictionary[dictionary.start_token], dictionary[dictionary.end_token]
    persona, query = [], []
    for part, found in (("persona", persona), ("query", query)):
        for sentence, text in enumerate(getattr(texts, part)):
            encoding = dictionary.wordpiece.encode(str(text), add_special_tokens=False)
            found += [Position(part, sentence, *offsets) for offsets in encoding.offsets]
            if part == "query":
                found.append(None)  # [SEP]
    begin = ids.index(start_id, 1) + 1  # of the query
    end = max(index for index, word in enumerate(ids) if word == end_id) + 1
    query = query[len(query) - (end - begin) :] if query else [None]  # an empty query is one [SEP]
    found = [None, *persona[: begin - 3], None, None, *query]
    return found + [None] * (len(ids) - end)


def place_tokens(tokens: list[str], text: str) -> list[tuple[int, int]]:
    """Where the word pieces of a reply stand in its text, which differs by spaces only."""
    places, at = [], 0
    for token in tokens:
        surface = token.removeprefix("##")
        while at < len(text) and text[at].isspace():
            at += 1
        begin = min(at, len(text))
        at = begin + (len(surface) if text.startswith(surface, begin) else 0)
        places.append((begin, at))
    return places


def spans(tokens: list[dict], text: str) -> list[dict]:
    """Runs of tokens that come from one place, see the module's description."""
    runs = []
    for token in tokens:
        if token["start"] == token["end"]:
            continue
        parts = {part: token[part] for part in ("generated", "query", "persona")}
        origin = max(parts, key=parts.get)
        by_sentence: dict[int, float] = {}
        for source in token["sources"]:
            if source["from"] == origin:
                mass = by_sentence.get(source["sentence"], 0.0) + source["probability"]
                by_sentence[source["sentence"]] = mass
        sentence = max(by_sentence, key=by_sentence.get) if by_sentence else None
        share = parts[origin] / (sum(parts.values()) or 1.0)
        if not runs or (origin, sentence) != runs[-1][:2]:
            runs.append((origin, sentence, [], []))
        runs[-1][2].append(token)
        runs[-1][3].append(share)
    return [
        {
            "text": text[members[0]["start"] : members[-1]["end"]],
            "start": members[0]["start"],
            "end": members[-1]["end"],
            "from": origin,
            "sentence": sentence,
            "share": round(sum(shares) / len(shares), 4),
        }
        for origin, sentence, members, shares in runs
    ]


class Provenance:
    """Adds ``--provenance`` to an agent of this package whose model can ``explain``."""

    _replied = None  # (batch, replies) that were generated last

    @classmethod
    def add_cmdline_args(cls, parser, partial_opt=None):
        super().add_cmdline_args(parser, partial_opt)
        group = parser.add_argument_group("Provenance")
        group.add_argument(
            "--provenance",
            type="bool",
            default=False,
            help="Say for each word of a reply how probable it was that it was generated, copied "
            "from the query or copied from the persona, and from which words: in the message's "
            "field 'provenance', so also in logs, and in the chat of this package's tasks.",
        )
        return parser

    @classmethod
    def check_options(cls, opt) -> None:
        super().check_options(opt)
        if opt.get("provenance") and opt.get("copy") == "none":
            raise PersonaAgentsError(f"--provenance true: {NOT_COPYING} Leave the option out.")

    def why_not(self) -> str | None:
        """Why replies cannot be explained, None if they can."""
        return NOT_COPYING if self.opt.get("copy") == "none" else None

    # -- what is needed to know the input's words again ------------------------------------------

    def _set_text_vec(self, obs, history, truncate):
        obs = super()._set_text_vec(obs, history, truncate)
        if "text_vec" in obs:
            texts = Texts(tuple(history.persona), tuple(history.history_strings))
            obs.force_set("provenance_texts", texts)
        return obs

    def batchify(self, obs_batch, sort=False):
        batch = super().batchify(obs_batch, sort)
        if batch.valid_indices is not None:
            batch.provenance_texts = [
                obs_batch[i].get("provenance_texts") for i in batch.valid_indices
            ]
        return batch

    # -- explaining ------------------------------------------------------------------------------

    def _add_generation_metrics(self, batch, preds):
        self._replied = (batch, preds)
        super()._add_generation_metrics(batch, preds)

    def eval_step(self, batch):
        self._replied = None
        output = super().eval_step(batch)
        if output is not None and self._replied is not None and self.opt.get("provenance"):
            output.provenance = self.explain_last()
        return output

    def explain_last(self, attention: bool = False) -> list[dict]:
        """The provenance of the replies that this agent generated last, [] if there are none."""
        return [] if self._replied is None else self.explain(*self._replied, attention)

    def explain_text(self, observation, reply: str, tokens=None) -> dict:
        """
        The provenance of a given reply, with attention.

        :param observation: what the agent's ``observe`` returned for the turn it answers.
        :param tokens: word pieces that the reply consists of; by default those of its text.
        """
        batch = self.batchify([observation])
        if self.use_cuda:
            batch = batch.to("cuda" if self.opt["gpu"] == -1 else self.opt["gpu"])
        words = [self.dict[token] for token in tokens or self.dict.tokenize(reply)]
        reply_ids = torch.tensor([*words, self.END_IDX], device=batch.text_vec.device)
        return self.explain(batch, [reply_ids], attention=True)[0]

    def explain(self, batch, replies, attention: bool = False) -> list[dict]:
        """
        The provenance of one reply for each input of the batch.

        :param replies: vectors of ids that end in [SEP]; a [CLS] in front is dropped.
        :param attention: add the matrices: "words", the input's words in the form of "sources",
            and to each token "attention", the weight of each of them, which sum to one over the
            query and over the persona.
        """
        if self.why_not():
            raise PersonaAgentsError(f"Replies cannot be explained: {self.why_not()}")
        rows = [row[1:] if len(row) and row[0] == self.START_IDX else row for row in replies]
        ys, _ = self._pad_tensor(rows, is_label=True)
        self.model.eval()
        with torch.no_grad(), self.precision.autocast():
            encoded = self.module.encoder(*self._encoder_input(batch))
            explanation = self.module.explain(encoded, ys.to(batch.text_vec.device))
        found = _as_lists(explanation, attention)
        return [
            self._describe(
                {name: part[i] for name, part in found.items()},
                batch.text_vec[i].tolist(),
                batch.provenance_texts[i],
                row.tolist(),
            )
            for i, row in enumerate(rows)
        ]

    def _describe(self, found: dict, ids, texts, reply) -> dict:
        """One reply's provenance, from its row of the explanation's lists."""
        places = positions(ids, texts, self.dict)
        words = [(i, place.describe(texts)) for i, place in enumerate(places) if place is not None]
        text = self._v2t(reply)
        pieces = [self.dict[word] for word in reply]
        shown = [piece if word != self.END_IDX else "" for piece, word in zip(pieces, reply)]
        tokens = []
        for t, (start, end) in enumerate(place_tokens(shown, text)):
            token = {"token": pieces[t], "text": text[start:end], "start": start, "end": end}
            token.update((name, round(found[name][t], DIGITS)) for name in NUMBERS)
            copied = found["copied"][t]
            token["sources"] = [
                {**word, "probability": round(copied[i], DIGITS)}
                for i, word in words
                if copied[i] > NEGLIGIBLE
            ]
            if "attention" in found:
                token["attention"] = [round(found["attention"][t][i], DIGITS) for i, _ in words]
            tokens.append(token)
        result = {
            "persona": list(texts.persona),
            "query": list(texts.query),
            "tokens": tokens,
            "spans": spans(tokens, text),
        }
        if "attention" in found:
            result["words"] = [word for _, word in words]
        return result


def _as_lists(explanation: Explanation, attention: bool) -> dict[str, list]:
    """An explanation's numbers as lists, the sums over query and persona among them."""
    copied = explanation.copied  # (B, T, S)
    found = {
        "probability": explanation.probability,
        "generated": explanation.generated,
        "query": (copied * explanation.query.unsqueeze(1)).sum(-1),
        "persona": (copied * explanation.persona.unsqueeze(1)).sum(-1),
        "p_gen": explanation.p_gen,
        "beta": explanation.beta,
        "gamma": explanation.gamma,
        "copied": copied,
    }
    if attention:
        found["attention"] = explanation.attention
    return {name: part.tolist() for name, part in found.items()}
