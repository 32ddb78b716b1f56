"""What runs where the engine runs: the standard library of Python 3.8 or later, nothing else.

Facts are plain JSON, and the checks are pure functions of them.
"""
