"""Report pages: a self-contained HTML file each; every picture is a function from values to an element."""
