"""The expression language of the cards: vocabulary, parse, check, evaluate on scalars and on whole columns."""
