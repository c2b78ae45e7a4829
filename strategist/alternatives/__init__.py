"""What could be changed about a request, and what that would bring; the planner finds out what each change is worth."""
