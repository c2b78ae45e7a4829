"""Files: YAML with positions, output files, and the cache of parsed shipped files."""
