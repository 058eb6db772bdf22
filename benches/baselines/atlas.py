"""Runs `atlas bench` in a process of its own and finds a work's result in what it prints."""

import json
import re
import shlex
import subprocess


class Atlas:
    """A command that takes `bench --json --only NAME`."""

    def __init__(self, command, timeout):
        self.command = shlex.split(command)
        self.timeout = timeout

    def bench(self, name):
        """The results and the record of one run, or a text that says what went wrong."""
        command = [*self.command, "bench", "--json", "--only", name]
        if name.endswith("_plan") or "_plan_" in name:
            command.append("--graph")
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=self.timeout, check=False)
        except subprocess.TimeoutExpired:
            return f"took more than {self.timeout:.0f} s"
        except OSError as error:
            return f"cannot start {command[0]}: {error}"
        # A non-zero exit status with results means that a result was wrong, which the results report themselves.
        value = _object(done.stdout)
        if value is None or not isinstance(value.get("results"), list):
            said = (done.stderr or done.stdout).strip()[-800:]
            return f"exit {done.returncode} and no results: {said}"
        return value


def _object(text):
    for start in range(len(text)):
        if text[start] == "{":
            try:
                value, _ = json.JSONDecoder().raw_decode(text[start:])
                return value if isinstance(value, dict) else None
            except json.JSONDecodeError:
                return None
    return None


def find(value, work):
    """The result of this work: same name or one that starts with it, same sizes, same element type."""
    for result in value["results"]:
        name = str(result.get("name", ""))
        sizes = tuple(int(n) for n in re.findall(r"\d+", str(result.get("shape", ""))))
        named = name == work.atlas or name.startswith(f"{work.atlas}_")
        if named and sizes == (work.atlas_sizes or work.sizes) and result.get("dtype") == work.dtype:
            return result
    return None
