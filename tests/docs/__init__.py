"""What the pages say is so, and their links lead somewhere."""
