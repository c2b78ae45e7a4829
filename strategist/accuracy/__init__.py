"""Published runs priced through the code that plans: how far the cost model is from what others measured."""
