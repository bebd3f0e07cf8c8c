"""Holds config files against a JSON Schema, by a validator and a reader of TOML that we did not write.

Arguments: the schema, then the files. Prints a JSON list with the errors of each file.
"""

import json
import sys
import tomllib
from pathlib import Path

from jsonschema import Draft202012Validator

schema = json.loads(Path(sys.argv[1]).read_text())
Draft202012Validator.check_schema(schema)
validator = Draft202012Validator(schema)
print(
    json.dumps(
        [
            [error.message for error in validator.iter_errors(tomllib.loads(Path(file).read_text()))]
            for file in sys.argv[2:]
        ]
    )
)
