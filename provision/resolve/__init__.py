"""Floor 3: a Request and the Matrix give a Stack or a Refusal. No I/O, no clock, no host."""
