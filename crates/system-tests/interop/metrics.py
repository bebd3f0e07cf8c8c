"""Reads scrapes of one process, in their order, by Prometheus' own parser, and holds them to its conventions.

Prints `{"families": COUNT}`, or fails with the first rule that is broken.
"""

import json
import re
import sys
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families

NAME = re.compile(r"gramway(_[a-z]+)+")

# Whatever else may be in a value could be an address, a host or a target.
VALUE = re.compile(r"[a-z0-9_]+")

# Labels with few values, beside those of buckets and versions.
LABELS = {
    "carrier",
    "class",
    "direction",
    "fate",
    "kind",
    "limit",
    "reason",
    "result",
    "role",
    "shard",
    "socket",
    "state",
    "status",
    "user",
}

# Prometheus' base units, as far as there are such values here.
UNITS = {"": None, "bytes": "_bytes", "seconds": "_seconds"}

# What is no base unit, and what a type adds by itself.
WRONG_ENDINGS = ("_ms", "_milliseconds", "_microseconds", "_kb", "_bits", "_total", "_count", "_sum", "_bucket")

SERIES_MAX = 1_000


def check_family(family):
    """Holds a family to the conventions."""
    name = family.name
    assert NAME.fullmatch(name), name
    assert family.type in {"counter", "gauge", "histogram"}, (name, family.type)
    assert not name.endswith(WRONG_ENDINGS), name
    assert family.documentation and not family.documentation.endswith("."), name
    ending = UNITS[family.unit]
    assert ending is None or name.endswith(ending), (name, family.unit)
    assert family.samples, name
    for sample in family.samples:
        for label, value in sample.labels.items():
            if label in {"le", "version"}:
                continue
            assert label in LABELS, (name, label)
            assert label == "user" or VALUE.fullmatch(value), (name, label, value)


def check_scrape(text):
    """Holds a scrape to the conventions; its families, and its samples by name and labels with whether they only grow."""
    families = list(text_string_to_metric_families(text))
    samples = {}
    for family in families:
        check_family(family)
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in samples, key
            samples[key] = (sample.value, family.type != "gauge")
    assert len(samples) <= SERIES_MAX, len(samples)
    return families, samples


def main():
    earlier = {}
    families = []
    for path in sys.argv[1:]:
        families, samples = check_scrape(Path(path).read_text(encoding="utf-8"))
        for key, (value, grows) in earlier.items():
            if grows:
                assert key in samples, f"{key} is gone"
                assert samples[key][0] >= value, f"{key} fell from {value} to {samples[key][0]}"
        earlier = samples
    print(json.dumps({"families": len(families)}), file=sys.stderr)


main()
