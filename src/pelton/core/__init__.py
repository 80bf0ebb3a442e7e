"""The data plane: compiled modules that everything touched once per message lives in."""

import sys

from pelton.core.libraries import Finder

sys.meta_path.append(Finder(__path__[0]))
