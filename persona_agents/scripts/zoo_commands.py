"""What `parlai persona_zoo` does."""

from __future__ import annotations

import functools
import os
import tempfile
import textwrap

from parlai.core.agents import create_agent_from_model_file
from parlai.core.opt import Opt
from parlai.scripts import eval_model

from persona_agents import packing, zoo_card, zoo_models
from persona_agents.checkpoint import read_json
from persona_agents.errors import PersonaAgentsError
from persona_agents.zoo.model_list import model_list


def main(opt) -> dict | None:
    """List, pack or verify; returns the report of an evaluation, if there was one."""
    if opt.get("pack") and opt.get("verify"):
        raise PersonaAgentsError("--pack and --verify exclude each other: give them one by one.")
    if opt.get("pack"):
        pack(opt)
    elif opt.get("verify"):
        return verify(opt)
    else:
        print(listing())
    return None


def listing() -> str:
    """The list of models as text."""
    lines = []
    for entry in model_list:
        lines += [f"{entry['path']}  ({entry['title']})", f"    {entry['example']}"]
        for part in (entry["description"], entry["result"]):
            lines += textwrap.wrap(part, 100, initial_indent="    ", subsequent_indent="    ")
        lines.append("")
    base = os.environ.get(zoo_models.ZOO_URL)
    lines.append(
        f"Models that do not come with the package are fetched from {base}"
        if base
        else f"{zoo_models.ZOO_URL} is not set, so that only the models that come with the package "
        "can be had; no address of others is published yet."
    )
    return "\n".join(lines)


def pack(opt) -> None:
    """Pack the model of ``--model-file``, and write the archive's checksum beside it."""
    archive, model_file = opt["pack"], opt.get("model_file")
    if not archive.endswith(".zip"):
        raise PersonaAgentsError(f"--pack {archive}: the name of an archive ends in .zip.")
    if not model_file:
        raise PersonaAgentsError("--pack needs --model-file, the trained model to be packed.")
    report = None
    if opt.get("card_report"):
        report = read_json(opt["card_report"], "a report of eval_model")
        if not isinstance(report.get("report"), dict):
            raise PersonaAgentsError(
                f"--card-report {opt['card_report']}: this is no report. Name the file that `parlai "
                "eval_model --report-filename` wrote."
            )

    name = os.path.basename(archive)[: -len(".zip")]
    write_card = functools.partial(
        zoo_card.write, name, report=report, licence=opt.get("card_license")
    )
    sizes = packing.pack(model_file, archive, write_card, opt.get("half", False))
    checksum = packing.sha256(archive)
    with open(f"{archive}.sha256", "w", encoding="utf-8", newline="\n") as file:
        file.write(f"{checksum}  {os.path.basename(archive)}\n")
    for name, size in sizes.items():
        print(f"{size:>14,} bytes  {name}")
    print(f"{os.path.getsize(archive):>14,} bytes  {archive}, SHA-256 {checksum}")


def verify(opt) -> dict | None:
    """Check an archive, load its model, and evaluate it where a task is given."""
    archive = opt["verify"]
    with tempfile.TemporaryDirectory() as folder:
        packing.unpack(archive, folder)
        model_file = os.path.join(folder, packing.WEIGHTS)
        try:
            agent = create_agent_from_model_file(model_file)
        except Exception as error:  # noqa: BLE001 - options from anywhere can fail in any way
            reason = (str(error) or type(error).__name__).replace(folder + os.sep, "")
            raise PersonaAgentsError(
                f"{archive} cannot be loaded: {' '.join(reason.split())}"
            ) from None
        parameters = sum(parameter.numel() for parameter in agent.model.parameters())
        print(
            f"{archive} is sound: {agent.opt['model']} with {parameters:,} parameters and "
            f"{len(agent.dict):,} words, SHA-256 {packing.sha256(archive)}"
        )
        if not opt.get("task"):
            return None
        return eval_model.eval_model(Opt({**opt, "model_file": model_file}))
