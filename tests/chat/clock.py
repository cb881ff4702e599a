"""A clock for stores of conversations: each look at it is a second later."""


class Clock:
    """Seconds that pass only when asked for."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        self.now += 1.0
        return self.now
