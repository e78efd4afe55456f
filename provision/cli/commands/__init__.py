"""One module a command, each with ``configure(parser)`` and ``run(options, output)``; imported when it is called."""
