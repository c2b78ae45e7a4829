"""Programs that train and are somebody else's: how they are started, what they can set, and how their figures are read."""
