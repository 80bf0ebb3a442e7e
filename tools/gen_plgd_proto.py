"""Make the protobuf modules of ``pelton.plgd.wire`` again from their ``.proto`` files.

    python tools/gen_plgd_proto.py [FOLDER]

Writes into FOLDER, by default next to the source. Needs ``grpcio-tools`` (the extra ``test``).
"""

import re
import sys
from pathlib import Path

from grpc_tools import protoc

SOURCE = Path(__file__).parents[1] / "src"
PACKAGE = "pelton/plgd/wire"


def main(out: Path) -> int:
    """Compile every file; return protoc's exit code."""
    protos = [f"{PACKAGE}/{path.name}" for path in sorted((SOURCE / PACKAGE).glob("*.proto"))]
    code = int(
        protoc.main(["protoc", f"-I{SOURCE}", f"--python_out={out}", f"--pyi_out={out}", *protos])
    )
    for path in (out / PACKAGE).glob("*_pb2.py*"):
        # protoc leaves blanks at the ends of lines
        path.write_text(re.sub(r"[ \t]+$", "", path.read_text(), flags=re.MULTILINE))
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCE))
