"""Reading XLA profiles: from an `.xplane.pb` file to one Timeline per step (`trace.read`)."""
