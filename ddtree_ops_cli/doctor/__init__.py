"""The doctor: whether a host and an image fit each other, told before a service is started.

`portable` gathers facts and judges them with nothing but Python's own library (3.8 or later), so
the same source runs here, inside an image, and as one script on a host where nothing may be
installed. `export` writes that script, `visit` runs it over a connection, `report` shows it.
"""
