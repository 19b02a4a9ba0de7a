"""The only place that names concrete classes: settings in, ports out."""
