"""The checks, in files by what they look at; ``all`` holds every one of them."""
