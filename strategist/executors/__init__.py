"""How a plan becomes a trial: processes started, watched, ended, and judged."""
