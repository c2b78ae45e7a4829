"""pre-commit reads the manifest of our hooks as it would in somebody's repository."""

import json
import sys

from pre_commit.clientlib import load_manifest

print(json.dumps([{"id": hook["id"], "entry": hook["entry"], "types_or": hook["types_or"]} for hook in load_manifest(sys.argv[1])]))
