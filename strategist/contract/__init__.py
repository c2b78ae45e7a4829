"""Values shared by the planner and the runtime. Imports the standard library, ``errors``, ``units`` and ``files/outputs`` only."""
