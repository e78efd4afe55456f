"""Write the bytecode of every module in this environment that has none yet, the same bytes each time.

The bytes a compiler process writes depend on what it compiled before. So the modules are dealt to a fixed number of
processes in sorted order, whatever the number of processors. Test folders keep their sources and get no bytecode.
"""

import compileall
import os
import pathlib
import py_compile
import subprocess
import sys
import sysconfig

SHARDS = 4
SKIPPED = {"test", "tests"}


def find_uncompiled(root):
    """Return the sorted paths of the modules below ``root`` without bytecode."""
    found = []
    for path in root.rglob("*.py"):
        cached = path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc"
        if not SKIPPED.intersection(path.relative_to(root).parts[:-1]) and not cached.exists():
            found.append(str(path))
    return sorted(found)


def compile_shard(paths):
    """Compile the modules named; one that is not a valid Python for this version is left as it is."""
    for path in paths:
        compileall.compile_file(path, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)


def main():
    """Compile in parallel; every process gets the same list and takes its share."""
    if len(sys.argv) > 1:
        compile_shard(sys.stdin.read().splitlines())
        return
    paths = find_uncompiled(pathlib.Path(sysconfig.get_path("purelib")))
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    running = []
    for shard in range(SHARDS):
        process = subprocess.Popen(
            [sys.executable, __file__, "--shard"], stdin=subprocess.PIPE, env=environment, text=True
        )
        process.stdin.write("\n".join(paths[shard::SHARDS]))
        process.stdin.close()
        running.append(process)
    failed = [process.wait() for process in running]
    if any(failed):
        sys.exit(f"a compiler process ended with {max(failed)}")


if __name__ == "__main__":
    main()
