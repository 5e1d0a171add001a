"""Build backend of the package, for pip (PEP 517): its wheel, with the standard library only."""

import base64
import hashlib
import pathlib
import subprocess
import sys
import tomllib
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = "hydrant_wasm"
# The time of each file, so that equal contents make equal wheels.
DATE = (1980, 1, 1, 0, 0, 0)


def metadata(project):
    """The contents of METADATA."""
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"License: {project['license']}",
        f"Keywords: {','.join(project['keywords'])}",
        f"Requires-Python: {project['requires-python']}",
        *[f"Requires-Dist: {dependency}" for dependency in project["dependencies"]],
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + (HERE / project["readme"]).read_text()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Writes the wheel, with records that are generated here, and returns its name."""
    subprocess.run([sys.executable, HERE.parent / "bindings"], check=True)
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    info = f"{PACKAGE}-{project['version']}.dist-info"
    files = {f"{PACKAGE}/{path.name}": path.read_bytes() for path in sorted((HERE / PACKAGE).glob("*.py"))}
    files[f"{info}/METADATA"] = metadata(project).encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: hydrant\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{PACKAGE}/py.typed"] = b""
    rows = []
    for name, contents in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(contents).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(contents)}\n")
    files[f"{info}/RECORD"] = "".join([*rows, f"{info}/RECORD,,\n"]).encode()
    wheel = f"{PACKAGE}-{project['version']}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / wheel, "w") as archive:
        for name, contents in files.items():
            entry = zipfile.ZipInfo(name, DATE)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
            archive.writestr(entry, contents)
    return wheel


def build_sdist(sdist_directory, config_settings=None):
    """Not supported: the package is built from the repository."""
    raise NotImplementedError("build a wheel: pip wheel host-wasm/python")
