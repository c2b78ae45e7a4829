"""Steps, one after the other: trainer, session, and the state they leave."""
