"""Accuracy: published runs priced by the planner's code, and the cost model's errors on them."""
