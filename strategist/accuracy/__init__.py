"""Published runs priced by the planner's code: the error of the cost model against published measurements."""
