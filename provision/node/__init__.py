"""Drive the committed playbooks: which hosts, with which lock, what happened there, and what is left after a break."""
