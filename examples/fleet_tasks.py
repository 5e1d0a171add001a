#!/usr/bin/env python3
"""Runs many tasks through a fleet of hydrant, a bounded number at a time, and collects what they print and their exit codes.

    hydrant up --name pool                       # once; hosts as for hydrant run
    python3 fleet_tasks.py --tasks 10000 --ranks 1 pool sh -c 'echo $((TASK * TASK))'
    hydrant down pool

Each task is a process of `hydrant run --on`, whose exit code is the task's. Its number is the environment variable TASK. Tasks
that find no free slots wait in the fleet, so that --at-once may exceed the slots: it bounds the processes on this machine.
"""

import argparse
import asyncio
import collections
import os
import sys


async def run_task(hydrant, fleet, ranks, command, number):
    """Runs one task. Returns its exit code, its output and its error output."""
    process = await asyncio.create_subprocess_exec(
        hydrant, "run", "--on", fleet, "-n", str(ranks), *command,
        env={**os.environ, "TASK": str(number)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await process.communicate()
    return process.returncode, stdout, stderr


async def run_all(options):
    """Runs all tasks. Returns what `run_task` returns for each, in their order."""
    results = [None] * options.tasks
    numbers = iter(range(options.tasks))

    async def work():
        for number in numbers:
            results[number] = await run_task(
                options.hydrant, options.fleet, options.ranks, options.command, number
            )

    await asyncio.gather(*(work() for _ in range(min(options.at_once, options.tasks))))
    return results


def main():
    parser = argparse.ArgumentParser(description="Runs many tasks through a fleet of hydrant.")
    parser.add_argument("fleet", help="name of the fleet")
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--ranks", type=int, default=1, help="ranks of each task")
    parser.add_argument("--at-once", type=int, default=2 * (os.cpu_count() or 1), help="tasks at a time")
    parser.add_argument("--hydrant", default="hydrant", help="path of the command")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="program of a task, with its arguments")
    options = parser.parse_args()
    if not options.command or options.tasks < 1 or options.at_once < 1:
        parser.error("give a program, and at least one task at a time")
    results = asyncio.run(run_all(options))
    for number, (code, _, stderr) in enumerate(results):
        if code != 0:
            text = stderr.decode(errors="replace").strip()
            print(f"task {number} exited with code {code}: {text}", file=sys.stderr)
    codes = collections.Counter(code for code, _, _ in results)
    lines = sum(len(stdout.splitlines()) for _, stdout, _ in results)
    print(f"{len(results)} tasks, {lines} lines of output; exit codes:", end="")
    print("".join(f" {code} ({count} times)" for code, count in sorted(codes.items())))
    return 0 if set(codes) == {0} else 1


if __name__ == "__main__":
    sys.exit(main())
