"""The templates of ``images/`` as Python, written by ``tools/compile_templates.py``; not for reading."""
