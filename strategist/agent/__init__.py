"""Agent interface: tools, resources and prompts over the Model Context Protocol, within the limits of a grant."""
