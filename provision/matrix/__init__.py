"""Floor 2: the facts of ``compat/`` as frozen objects, and the look-ups over them."""
