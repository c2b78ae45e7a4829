"""Reports as pages: one file of HTML that needs nothing else; each picture is a function from values to an element."""
