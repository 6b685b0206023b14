"""Tables."""
from pathlib import Path
def report(files, into):
    return ""
