"""Whether two addresses answer alike: what was heard in several runs of one probe, at one and at the other.

Answers are compared datagram by datagram: their number, their order, the headers of their packets, their sizes. Servers
are not machines of one outcome: timers fire late on a busy machine, datagrams are lost. So each probe runs several
times, and a probe differs where most runs at one address look like none at the other.
"""

from dataclasses import dataclass, field
from statistics import median

# An ECDSA signature's encoding varies by so many bytes, and with it what contains or follows it.
SIGNATURE_BYTES = 4

# At the end of the time that answers are waited for, one may come just in time here and too late there.
EDGE_SECONDS = 0.35

# Datagrams at the end that only repeat a handshake: a server whose timer fires late sends so many fewer by then.
REPEATED_DATAGRAMS = 2

# What a probe's delay may differ from the delays of the other probes, that is, from the added hop: this much, and this
# part of the delay that the cover has.
TIMING_SECONDS = 0.015
TIMING_PART = 0.5


@dataclass
class Run:
    """One run of a probe: answers as (seconds, packets), and what else it found out, by name."""

    answers: list = field(default_factory=list)
    facts: dict = field(default_factory=dict)
    seconds: float = 1.0

    def __str__(self):
        said = [" + ".join(map(str, packets)) for _, packets in self.answers]
        said += [f"{name}: {value}" for name, value in self.facts.items()]
        return "; ".join(said) or "silence"


def differ(host, cover):
    """Whether most runs at one address look like none at the other."""
    return any(2 * len(strange(runs, others)) > len(runs) for runs, others in [(host, cover), (cover, host)])


def strange(runs, others):
    """The runs that could not be those of the server that the others are from."""
    return [run for run in runs if not any(is_alike(run, shape) for shape in shapes(others))]


@dataclass
class Shape:
    """Runs that say the same: which sizes each packet had in them."""

    says: list
    facts: dict
    sizes: list
    news: list
    times: list
    varies: list


def shapes(runs):
    found = []
    for run in runs:
        says = said(run)
        same = next((shape for shape in found if shape.says == says and shape.facts == run.facts), None)
        if same is None:
            packets = [packet for _, datagram in run.answers for packet in datagram]
            varies = [packet.varies for packet in packets]
            same = Shape(says, run.facts, [[] for _ in packets], are_news(run), [], varies)
            found.append(same)
        for sizes, size in zip(same.sizes, sizes_of(run)):
            sizes.append(size)
        same.times.append([seconds for seconds, _ in run.answers])
    return found


def said(run):
    return [[packet.says for packet in packets] for _, packets in run.answers]


def are_news(run):
    return [any(packet.is_news for packet in packets) for _, packets in run.answers]


def sizes_of(run):
    return [packet.size for _, packets in run.answers for packet in packets]


def is_alike(run, shape):
    """Whether a run could be another one of a shape. At the end of the time one of them may lack answers."""
    says = said(run)
    both = min(len(says), len(shape.says))
    if run.facts != shape.facts or says[:both] != shape.says[:both]:
        return False
    if not all(can_be(size, *known) for size, *known in zip(sizes_of(run), shape.sizes, shape.varies)):
        return False
    surplus = [seconds for seconds, _ in run.answers[both:]] + [min(times) for times in zip(*shape.times)][both:]
    if not any(are_news(run)[both:] + shape.news[both:]) and len(surplus) <= REPEATED_DATAGRAMS:
        return True
    return all(seconds > run.seconds - EDGE_SECONDS for seconds in surplus)


def can_be(size, known, varies):
    """Whether a packet may have this size where those had the known ones. What padded packets of one server differ by
    is random: beyond what was seen there may be as much again."""
    slack = max(known) - min(known) + (SIGNATURE_BYTES if varies else 0)
    return min(known) - slack <= size <= max(known) + slack


def late(delays):
    """The probes whose answers take longer or shorter than the added hop explains.

    `delays` has the seconds to the first answer at host and at cover by probe. Gives the hop in seconds, and by probe what its
    median differs from it.
    """
    medians = {name: (median(host), median(cover)) for name, (host, cover) in delays.items() if host and cover}
    if not medians:
        return 0.0, {}
    hop = median(host - cover for host, cover in medians.values())
    found = {}
    for name, (host, cover) in medians.items():
        off = host - cover - hop
        if abs(off) > TIMING_SECONDS + TIMING_PART * cover:
            found[name] = off
    return hop, found
