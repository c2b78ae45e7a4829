"""Reports: contract values as terminal tables, text and pages. Nothing here prints."""
