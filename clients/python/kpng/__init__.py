"""Follows the view of a node that a kpng watcher serves, and calls a function with each new state."""

from kpng.client import Change, Client, Options, Status, run
from kpng.view import Service, View

__all__ = ["Change", "Client", "Options", "Service", "Status", "View", "run"]
