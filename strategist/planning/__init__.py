"""From a request to plans: the planner, explanations, comparisons and reviews of plans."""
