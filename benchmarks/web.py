"""
How long do visitors of the web chat wait? 32 at once, answered in batches and one after another.

Starts the web chat's server twice with the same HCM (trained on the Chinese mini corpus as
`benchmarks/copy.py` does, unless --model-file names one): as it is, and with batches of one. 32
visitors, each with a persona and a chat of their own, send a question of the test split at the same
moment; what counts is the time until each has the reply, provenance included. Rounds of both kinds
alternate. Prints the medians over visitors and rounds, and the median ratio of a round.

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


class Server:
    """The web chat's server with batches of at most `limit`, and a chat for each visitor."""

    def __init__(self, agent, limit: int):
        self.service = Service(agent, limit=limit)
        self.server, self.port = listen(self.service, "127.0.0.1", 0)
        self.running = asyncio.ensure_future(self.service.run())

    async def begin(self, inputs: list) -> None:
        self.inputs = inputs
        begun = [await post(self.port, "session", persona=sample.persona) for sample in inputs]
        self.names = [answer["session"] for _, answer in begun]

    async def round(self) -> tuple[float, list[str]]:
        """All visitors ask at once: the median of their seconds, and the replies."""
        visits = [
            post(self.port, "chat", session=name, message=sample.query)
            for name, sample in zip(self.names, self.inputs)
        ]
        answers = await asyncio.gather(*visits)
        seconds = [taken for taken, _ in answers]
        return statistics.median(seconds), [answer["reply"] for _, answer in answers]

    def stop(self) -> None:
        self.running.cancel()
        self.server.stop()


async def compare(agent, inputs: list, rounds: int) -> tuple[dict[str, list[float]], int]:
    """Each way's median wait in every round, round by round in turn; how many replies agree."""
    servers = {"in batches": Server(agent, len(inputs)), "one after another": Server(agent, 1)}
    for server in servers.values():
        await server.begin(inputs)
        await server.round()  # warms up
    medians, said = {name: [] for name in servers}, {}
    for _ in range(rounds):  # in turn, so that other work of the machine meets both
        for name, server in servers.items():
            median, said[name] = await server.round()
            medians[name].append(median)
    for server in servers.values():
        server.stop()
    return medians, sum(one == other for one, other in zip(*said.values()))


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
    medians, same = asyncio.run(compare(agent, inputs, args.rounds))
    for name, waits in medians.items():
        print(f"{name}: median {statistics.median(waits):.3f} s")
    print(f"{same} of {len(inputs)} replies are the same both ways")
    ratios = [batches / single for batches, single in zip(*medians.values())]
    ratio = statistics.median(ratios)
    print(f"ratio {ratio:.3f}, from {min(ratios):.3f} to {max(ratios):.3f}")
    print_results([result("web wait, batches / one by one", ratio, "<= 0.3333")])


if __name__ == "__main__":
    main()
