"""What `parlai persona_vocab` does; see :mod:`persona_agents.scripts.persona_vocab`."""

from __future__ import annotations

from pathlib import Path

import torch
from parlai.core.agents import create_agent
from parlai.core.build_data import modelzoo_path
from parlai.core.message import Message

from persona_agents.errors import PersonaAgentsError
from persona_agents.persona import format_turn
from persona_agents.words import WordDictionaryAgent


def main(opt) -> dict:
    """Print a model's function words and, for ``--query``, its T; returns both as plain data."""
    if not opt.get("model_file"):
        raise PersonaAgentsError("parlai persona_vocab needs a model: -mf FILE")
    if opt["show_words"] < 0:
        raise PersonaAgentsError(
            f"--show-words {opt['show_words']}: give a number of words, 0 or more."
        )
    opt["model_file"] = modelzoo_path(opt.get("datapath"), opt["model_file"])
    if not Path(opt["model_file"]).is_file():
        raise PersonaAgentsError(
            f"--model-file {opt['model_file']}: this file does not exist. Give the -mf of a "
            "training of persona_agents:dvs2s."
        )
    agent = create_agent({**opt, "interactive_mode": True})
    if not isinstance(agent.dict, WordDictionaryAgent):
        raise PersonaAgentsError(
            f"{opt['model_file']} was trained by {agent.opt['model']}, which chooses no vocabulary; "
            "parlai persona_vocab reads models of persona_agents:dvs2s."
        )
    shown, words = opt["show_words"], agent.dict.words
    function = [word for word, known in words.items() if known.is_function]
    special = agent.dict.n_function - len(function)
    print(
        f"{len(agent.dict)} words: {special} special tokens, {len(function)} function words, "
        f"{len(words) - len(function)} content words; {agent.dict.n_replies} training replies"
    )
    print(
        f"\nThe {min(shown, len(function))} most frequent function words (part of speech, count):"
    )
    print(", ".join(f"{word} ({words[word].tag} {words[word].count})" for word in function[:shown]))
    found = {"words": len(agent.dict), "function_words": function}
    if opt.get("query"):
        found.update(_vocabulary_of(agent, opt))
        chosen = list(found["content_words"].items())
        print(
            f"\n|T| = {found['t_size']}. Its {min(shown, len(chosen))} most probable content words:"
        )
        print(", ".join(f"{word} {probability:.3f}" for word, probability in chosen[:shown]))
    return found


def _vocabulary_of(agent, opt) -> dict:
    """T of the query: its size, and its content words with beta, most probable first."""
    if agent.module.predictor is None:
        raise PersonaAgentsError(
            f"{opt['model_file']} was trained with --dvs none: its T is the whole dictionary."
        )
    persona = [line.strip() for line in (opt.get("persona") or "").split("|") if line.strip()]
    text = format_turn(persona, opt["query"])
    batch = agent.batchify([agent.observe(Message({"text": text, "episode_done": True}))])
    first = agent.dict.n_function
    agent.module.eval()
    with torch.no_grad():
        encoded = agent.module.encoder(batch.text_vec)
        vocabulary = agent.choose_vocabulary(encoded, 1, "gather")
        beta = agent.module.word_logits(encoded)[0].sigmoid()
    chosen = vocabulary.row(0).to_words(torch.arange(first, vocabulary.n_columns).unsqueeze(0))[0]
    chosen = sorted(chosen.tolist(), key=lambda word: -beta[word - first])
    return {
        "t_size": int(vocabulary.sizes[0]),
        "content_words": {agent.dict[word]: float(beta[word - first]) for word in chosen},
    }
