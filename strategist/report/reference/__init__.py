"""Generated reference: Markdown pages made from cards, settings and checks."""
