"""Serve the workbench's page: ``python app.py [--host HOST] [--port PORT] [--workspace FOLDER]``."""

import sys

from workbench.cli import main

if __name__ == "__main__":
    sys.exit(main(["app", "--no-browser", *sys.argv[1:]]))
