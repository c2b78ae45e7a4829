"""Profiles do not import heavy libraries."""

import json
import subprocess
import sys

HEAVY = {"torch", "numpy", "pandas", "optuna", "jsonschema", "transformers", "huggingface_hub", "rich", "http", "ssl"}


def test_resolving_a_request_imports_no_heavy_library():
    script = """
import json, sys
from strategist.contract.request import Request
from strategist.profiles import history, request_file, situation
situation.situation(Request(model="32b", gpus="8x24GB"))
print(json.dumps(sorted(sys.modules)))
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(answer.stdout)}
    assert "strategist" in loaded
    assert loaded & HEAVY == set()
