"""The data plane: compiled modules that everything touched once per message lives in."""

import os
import sys

from pelton.core.libraries import Finder

sys.meta_path.append(Finder(__path__[0], pure=os.environ.get("PELTON_PURE") == "1"))
