"""Scripts put together from ES modules, run by the engine that also runs their unit tests."""

import subprocess
import sysconfig
from pathlib import Path

from workbench.views.cards import bundle

DENO = Path(sysconfig.get_path("scripts")) / "deno"
ROOT = Path(__file__).resolve().parents[1]


def run(script: str) -> str:
    done = subprocess.run([DENO, "eval", "--quiet", script], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return done.stdout


def write(folder: Path, **modules: str) -> Path:
    for name, source in modules.items():
        (folder / f"{name}.js").write_text(source)
    return folder / "main.js"


def test_a_bundle_is_the_entrys_exports_and_runs_each_module_once_after_what_it_imports(tmp_path):
    entry = write(
        tmp_path,
        base='console.log("base");\nconst hidden = 1;\nexport const one = hidden;\nexport class Two {}\n',
        middle='import { one as first } from "./base.js";\nconst add = (x) => x + first;\nexport { add as plus };\n',
        main='import {\n  one,\n  Two,\n} from "./base.js";\nimport { plus } from "./middle.js";\n'
        'export { one as again } from "./base.js";\n'
        "export async function three() {}\nexport const all = [plus(one), new Two().constructor === Two];\n",
    )
    shown = run(f"const b = {bundle(entry)}; console.log(Object.keys(b).sort(), b.all, b.again)")
    assert shown == 'base\n[ "again", "all", "three" ] [ 2, true ] 1\n'


def test_the_scripts_unit_tests_pass():
    command = [DENO, "test", "--no-check", "--no-remote", "--quiet", "tests/js"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout + done.stderr
