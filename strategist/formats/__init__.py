"""Files of other systems, both ways: what they say of a plan, and how a plan is said in them."""
