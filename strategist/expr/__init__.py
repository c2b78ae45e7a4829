"""The cards' expression language: vocabulary, parser, checker, and evaluation on scalars and on columns."""
