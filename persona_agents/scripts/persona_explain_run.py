"""Which replies `parlai persona_explain` explains: of samples, of one question, of a logged chat."""

from __future__ import annotations

import json
import os
from pathlib import Path

from parlai.core.agents import create_agent
from parlai.core.message import Message
from parlai.core.worlds import create_task

from persona_agents.errors import PersonaAgentsError
from persona_agents.persona import format_turn
from persona_agents.scripts import persona_explain_html, persona_explain_picture
from persona_agents.tasks.worlds import parse_persona


def main(opt) -> list[dict]:
    """Explain, write, and say where it was written."""
    opt["batchsize"] = 1  # replies are explained one by one
    agent = create_agent(opt, requireModelExists=True)
    if not hasattr(agent, "explain_text"):
        raise PersonaAgentsError(
            f"persona_explain: {opt.get('model')} cannot say where its words come from; a copying "
            "model of this package can, such as persona_agents:hcm."
        )
    if agent.why_not():
        raise PersonaAgentsError(f"persona_explain: {agent.why_not()}")
    if opt.get("log_file"):
        replies = of_log(agent, opt["log_file"])
    elif opt.get("query"):
        replies = [of_question(agent, parse_persona(opt.get("persona") or ""), opt["query"])]
    elif opt.get("task"):
        replies = of_samples(agent, opt)
    else:
        raise PersonaAgentsError(
            "persona_explain: what is to be explained? Give -t TASK, --query TEXT or --log-file FILE."
        )
    write(replies, opt.get("explain_folder") or f"{opt['model_file']}.explain")
    return replies


def case(query: str, reply: str, provenance: dict) -> dict:
    """One explained reply."""
    return {"query": query, "reply": reply, "provenance": provenance}


def of_samples(agent, opt) -> list[dict]:
    """Replies to the first samples of the task; with a multi-turn task, in their dialogues."""
    world, found = create_task(opt, agent), []
    while len(found) < opt["num_examples"] and not world.epoch_done():
        world.parley()
        asked, answer = world.get_acts()
        explained = agent.explain_last(attention=True)
        if explained and answer.get("text") is not None:
            query = "\n".join(explained[0]["query"]) or asked.get("text") or ""
            found.append(case(query, answer["text"], explained[0]))
    return found


def of_question(agent, persona, query: str) -> dict:
    """The reply to one question."""
    agent.observe(Message(id="user", text=format_turn(persona, query), episode_done=True))
    answer = agent.act()
    return case(query, answer["text"], agent.explain_last(attention=True)[0])


def of_log(agent, path: str) -> list[dict]:
    """The logged replies, each after the turns before it."""
    found = []
    for dialogue in read_log(path):
        agent.reset()
        for asked, answer in dialogue:
            text = asked.get("text") or ""
            observation = agent.observe(Message(id="user", text=text, episode_done=False))
            # the pieces that were generated, which may differ from those of the text
            reply, *tokens = _texts_of(answer)
            if tokens and all(token in agent.dict for token in tokens):
                tokens.pop()  # the end
            else:
                tokens = None
            explained = agent.explain_text(observation, reply, tokens)
            found.append(case("\n".join(explained["query"]), reply, explained))
            agent.self_observe(Message(id=agent.getID(), text=reply, episode_done=False))
    if not found:
        raise PersonaAgentsError(f"--log-file {path} holds no dialogue.")
    return found


def read_log(path: str) -> list[list[tuple[dict, dict]]]:
    """The dialogues of a log in ParlAI's conversations format: pairs of message and answer."""
    try:
        # not splitlines(), for which U+2028 and others, which JSON may hold, end a line too
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise PersonaAgentsError(f"--log-file {path} cannot be read: {error}.") from None
    dialogues = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            pairs = [(turn[0], turn[1]) for turn in json.loads(line)["dialog"]]
            for text in (text for pair in pairs for act in pair for text in _texts_of(act)):
                text.encode("utf-8")  # fails for what is no text, and for half a character
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            raise PersonaAgentsError(
                f"--log-file {path}, line {number}: this is no dialogue as ParlAI logs it in its "
                "conversations format, in pairs of message and answer."
            ) from None
        dialogues.append(pairs)
    return dialogues


def _texts_of(act: dict) -> list[str]:
    """The text of a logged message, and the word pieces of its provenance if it has one."""
    provenance = act.get("provenance") or {}
    return [act.get("text") or "", *(piece["token"] for piece in provenance.get("tokens", []))]


def write(replies: list[dict], folder: str) -> None:
    """Write all pictures and the page; without matplotlib or a font the page alone."""
    try:
        os.makedirs(folder, exist_ok=True)
        page = Path(folder) / "index.html"
        page.write_text(persona_explain_html.page(replies), encoding="utf-8")
    except OSError as error:
        raise PersonaAgentsError(f"--explain-folder {folder}: {error}.") from None
    missing = persona_explain_picture.what_is_missing(replies)
    if missing:
        print(f"Written: {page}. No pictures were drawn: {missing}")
        return
    for number, reply in enumerate(replies, 1):
        persona_explain_picture.draw(reply, Path(folder) / f"{number:03d}.png")
    print(f"Written: {page} and {len(replies)} pictures beside it.")
