// Runs a Python program in Pyodide: node main.mjs WHEELS TESTS PROGRAM
// WHEELS is a folder of wheels to load, TESTS the folder that is the package `tests`. The exit code is
// the value of the program's last line.
import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { loadPyodide } from "pyodide";

const [wheels, tests, program] = process.argv.slice(2);
const python = await loadPyodide();
for (const name of readdirSync(wheels).filter((each) => each.endsWith(".whl"))) {
  const archive = new Uint8Array(readFileSync(join(wheels, name)));
  python.unpackArchive(archive, "wheel", { extractDir: "/wheels" });
}
python.FS.mkdirTree("/checkout/tests");
python.mountNodeFS("/checkout/tests", resolve(tests));
python.runPython(`
import sys
sys.path[:0] = ["/checkout", "/wheels"]
sys.dont_write_bytecode = True
`);
process.exitCode = python.runPython(readFileSync(program, "utf8"));
