"""The door for agents: tools, resources and prompts over the Model Context Protocol, with what an agent may do held in bounds."""
