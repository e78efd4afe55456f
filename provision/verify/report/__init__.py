"""A verdict written down: for programs, test dashboards, browsers and Prometheus."""
