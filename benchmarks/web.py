"""
How long do visitors of the web chat wait? 32 at once, answered in batches and one after another.

Starts the web chat's server twice with the same HCM (trained on the Chinese mini corpus as
`benchmarks/copy.py` does, unless --model-file names one): as it is, and with batches of one. 32
visitors, each with a persona and a chat of their own, send a question of the test split at the same
moment; what counts is the time until each has the reply, provenance included. Prints the medians over
all visitors and rounds, and their ratio.

    python benchmarks/web.py [--model-file FILE] [--visitors N] [--rounds N]
"""

from __future__ import annotations

import sys

if not __package__:  # run as a file: this folder must not hide the standard library's `copy`
    sys.path[0] += "/.."

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path

from parlai.core.agents import create_agent_from_model_file
from tornado.httpclient import AsyncHTTPClient

from benchmarks.common import print_results, result, samples
from benchmarks.copy import TASKS, train
from persona_agents.web.server import listen
from persona_agents.web.sessions import Service

TASK = TASKS["zh"]


async def post(port: int, path: str, **data) -> tuple[float, dict]:
    """Seconds, and the answer of the server's JSON endpoint."""
    begin = time.perf_counter()
    answer = await AsyncHTTPClient().fetch(
        f"http://127.0.0.1:{port}/api/{path}",
        method="POST",
        headers={"Content-Type": "application/json"},
        body=json.dumps(data),
        request_timeout=600,
    )
    return time.perf_counter() - begin, json.loads(answer.body)


async def waits(agent, inputs: list, rounds: int, limit: int) -> tuple[list[float], list[str]]:
    """Every visitor's seconds in every round, and the replies of the last."""
    service = Service(agent, limit=limit)
    server, port = listen(service, "127.0.0.1", 0)
    running = asyncio.ensure_future(service.run())
    begun = [await post(port, "session", persona=sample.persona) for sample in inputs]
    names = [answer["session"] for _, answer in begun]
    seconds, replies = [], []
    for number in range(rounds + 1):  # the first warms up
        visits = [
            post(port, "chat", session=name, message=sample.query)
            for name, sample in zip(names, inputs)
        ]
        answers = await asyncio.gather(*visits)
        replies = [answer["reply"] for _, answer in answers]
        if number:
            seconds += [taken for taken, _ in answers]
    running.cancel()
    server.stop()
    return seconds, replies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model-file")
    parser.add_argument("--visitors", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    AsyncHTTPClient.configure(None, max_clients=args.visitors)
    with tempfile.TemporaryDirectory() as folder:
        model_file = args.model_file or str(Path(folder) / "model")
        if not args.model_file:
            train(TASK, model_file, num_epochs=2, seed=1)
        agent = create_agent_from_model_file(model_file, {"interactive_mode": True})
    inputs = samples(agent, TASK, "test")[: args.visitors]
    medians, said = {}, {}
    for name, limit in (("in batches", args.visitors), ("one after another", 1)):
        seconds, said[name] = asyncio.run(waits(agent, inputs, args.rounds, limit))
        medians[name] = statistics.median(seconds)
        print(f"{name}: median {medians[name]:.3f} s, longest {max(seconds):.3f} s")
    same = sum(one == other for one, other in zip(*said.values()))
    print(f"{same} of {len(inputs)} replies are the same both ways")
    ratio = medians["in batches"] / medians["one after another"]
    print(f"ratio {ratio:.3f}")
    print_results([result("web wait, batches / one by one", ratio, "<= 0.3333")])


if __name__ == "__main__":
    main()
