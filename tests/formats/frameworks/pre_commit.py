"""pre-commit reads the manifest of our hooks as in a user's repository."""

import json
import sys

from pre_commit.clientlib import load_manifest

if __name__ == "__main__":
    hooks = load_manifest(sys.argv[1])
    print(json.dumps([{"id": hook["id"], "entry": hook["entry"], "types_or": hook["types_or"]} for hook in hooks]))
