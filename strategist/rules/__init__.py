"""Cards applied to candidates: forbidden candidates, preferences, reasons, and proposals after a trial."""
