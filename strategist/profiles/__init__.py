"""What is known about the world: models, hardware, back ends and past measurements, and how a request names them."""
