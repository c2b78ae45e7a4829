"""Published rows read, priced and compared."""
