"""Sends the same probes to two addresses and tells where they answer differently: HOST:PORT COVER:PORT --name NAME.

Nobody who sends them should see whether a server stands behind its cover, or is the cover. Ends with 1 where a probe
differs, with 2 where the cover did not answer at all.
"""

import argparse
import asyncio
import json
import socket
import sys
from collections import Counter
from statistics import median

import verdict
from exchange import Link
from probes import PROBES, Pause, ToPeer
from reading import Packet, Reader
from sessions import SESSIONS
from verdict import Run
from wire import Path

# How long answers to a probe are waited for: longer than the first timer of a server that has no acknowledgement.
ANSWER_SECONDS = 1.2

# Within a handshake nothing more comes at once after so long.
SETTLED_SECONDS = 0.05

# How often the delay of each probe is measured, and how often once more where it was late.
TIMED_RUNS = 7
TIMED_ROUNDS = 3

# Further runs of a probe whose runs were not alike.
FURTHER_RUNS = 6

# Kinds of runs that are shown of each side where it differs.
SHOWN_RUNS = 3


async def run_script(make, target):
    """One run of a probe at one address."""
    path = Path()
    reader = Reader(path)
    answers = []
    with Link(target) as link:

        def read():
            for seconds, data in link.take_heard():
                packets = (Packet("refused by ICMP", 0),) if data is None else reader.datagram(data)
                if packets is not None:
                    answers.append((seconds, packets))

        for step in make(path):
            if isinstance(step, Pause):
                await link.wait(step.seconds)
            elif isinstance(step, ToPeer):
                await link.next_turn(ANSWER_SECONDS, SETTLED_SECONDS)
                read()
                reader.has_timers = True
                if reader.peer_id is not None:
                    link.send(step.make(reader.peer_id))
            else:
                link.send(step)
        await link.wait(ANSWER_SECONDS)
        read()
    return Run(answers, seconds=ANSWER_SECONDS)


async def first_delay(make, target):
    """Seconds from the last datagram of a probe to the first answer, or None. Probes in several turns have none."""
    steps = make(Path())
    if not all(isinstance(step, bytes) for step in steps):
        return None
    with Link(target) as link:
        link.send(*steps)
        await link.next_turn(ANSWER_SECONDS, 0)
        return link.heard[0][0] if link.heard else None


def named_scripts(name):
    """The probes of datagrams; their hellos ask for this name, unless a probe chooses another."""

    def named(make):
        def steps(path):
            hello = path.hello
            path.hello = lambda **choices: hello(**{"name": name.encode(), **choices})
            return make(path)

        return steps

    return {title: named(make) for title, make in PROBES}


def wanted(title, arguments):
    return not arguments.only or any(part in title for part in arguments.only)


async def run_all(arguments):
    probes = {
        title: lambda target, make=make: run_script(make, target)
        for title, make in named_scripts(arguments.name).items()
    }
    for title, session in SESSIONS:
        probes[title] = lambda target, session=session: session(target, arguments.name)
    probes = {title: probe for title, probe in probes.items() if wanted(title, arguments)}
    runs = {name: ([], []) for name in probes}
    places = asyncio.Semaphore(arguments.at_once)

    async def run(name):
        async with places:
            host, cover = await asyncio.gather(probes[name](arguments.host), probes[name](arguments.cover))
        runs[name][0].append(host)
        runs[name][1].append(cover)

    for _ in range(arguments.runs):
        await asyncio.gather(*(run(name) for name in probes))
    for _ in range(FURTHER_RUNS):
        odd = [name for name in probes if verdict.differ(*runs[name])]
        await asyncio.gather(*(run(name) for name in odd))
    return runs


async def measure(runs, arguments):
    """The delays of the first answers at both addresses, by probe, one at a time: on a busy server they say nothing.
    Those that are late are measured again, so that only what is late every time counts."""
    scripts = named_scripts(arguments.name)
    timed = [title for title in scripts if title in runs and all(run.answers for side in runs[title] for run in side)]
    delays = {}
    for _ in range(TIMED_ROUNDS):
        for title in timed:
            delays[title] = ([], [])
            for _ in range(TIMED_RUNS):
                for side, target in zip(delays[title], (arguments.host, arguments.cover)):
                    if (seconds := await first_delay(scripts[title], target)) is not None:
                        side.append(seconds)
        timed = list(verdict.late(delays)[1])
    return delays


def report(runs, delays, arguments):
    hop, late = verdict.late(delays)
    differing = [name for name, (host, cover) in runs.items() if verdict.differ(host, cover)]
    width = max(map(len, runs))
    for name, (host, cover) in runs.items():
        said = "differs" if name in differing else "late" if name in late else "same"
        times = " / ".join(f"{median(side) * 1000:.1f}" if side else "-" for side in delays.get(name, ((), ())))
        print(f"{name:{width}}  {said:7}  {times:>15} ms  {len(cover[0].answers)} answers")
        if name in differing:
            for side, those in [("host", host), ("cover", cover)]:
                for said, count in Counter(map(str, those)).most_common(SHOWN_RUNS):
                    print(f"    {side}, {count} of {len(those)}: {said}")
    print(f"{len(runs)} probes, {len(differing)} differ; the way to the host takes {hop * 1000:+.1f} ms")
    for name, seconds in late.items():
        print(f"    {name}: {seconds * 1000:+.1f} ms beyond that")
    is_silent = all(not run.answers and not run.facts for _, cover in runs.values() for run in cover)
    if is_silent:
        print("the cover answered nothing: nothing was compared")
    summary = {
        "probes": len(runs),
        "differ": differing,
        "late": list(late),
        "hop_ms": round(hop * 1000, 2),
        "cover_answered": not is_silent,
    }
    print(json.dumps(summary), flush=True)
    if is_silent:
        return 2
    return 1 if differing or late else 0


async def main(arguments):
    runs = await run_all(arguments)
    delays = {} if arguments.ignore_timing else await measure(runs, arguments)
    return report(runs, delays, arguments)


def address(text):
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
    except socket.gaierror as error:
        raise argparse.ArgumentTypeError(f"{host} has no address: {error}")
    return found[0][4][:2]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="probe", description=__doc__)
    parser.add_argument("host", type=address, help="HOST:PORT of the server that is to look like the cover")
    parser.add_argument("cover", type=address, help="HOST:PORT of the cover itself")
    parser.add_argument("--name", required=True, help="the name that the cover has a certificate for")
    parser.add_argument("--runs", type=int, default=3, help="of each probe; those that are not alike run more often")
    parser.add_argument("--at-once", type=int, default=8, help="probes that run at the same time")
    parser.add_argument("--only", action="append", help="only probes whose name contains this; may be repeated")
    parser.add_argument("--ignore-timing", action="store_true", help="do not measure delays")
    arguments = parser.parse_args()
    sys.exit(asyncio.run(main(arguments)))
