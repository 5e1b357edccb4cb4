#!/usr/bin/env python3
"""Runs the scripts of this system's first boot, each once, and reports their end to a rack. Basalt wrote it at the installation.

    run            runs the scripts that have not begun yet, and reports
    run --again    runs scripts that failed once more

At a later boot no script runs, and the report is sent again. All files are in the folder of this program: work.json has the scripts,
state.json their ends.
"""

import fcntl
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(sys.argv[0]))
# Most bytes of a line; a longer line is split. Then most bytes of a script's output that are logged.
LINE_BYTES = 4096
LOG_BYTES = 4 << 20
# Number of lines of a package manager that a failure quotes.
PACKAGE_LINES = 3
# Most characters of a quoted line, and most bytes of a report.
QUOTED = 400
REPORT_BYTES = 3500
# Time for processes that a script left, and pause between tries to report, in seconds. Then number of tries in one boot.
LEFT_BEHIND = 5
PAUSE = 10
TRIES = 360


def path(name):
    return os.path.join(HERE, name)


def write(name, text, mode=0o600):
    """Writes a file that survives a power cut, and replaces it at once."""
    temporary = path(name + ".new")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path(name))
    folder = os.open(HERE, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def read(name, otherwise):
    try:
        with open(path(name), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return otherwise


def say(text):
    print(text, flush=True)


def copy(pipe, name, last):
    """Logs the lines of a program, and keeps the last ones."""
    logged = 0
    while True:
        line = pipe.readline(LINE_BYTES)
        if not line:
            return
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if logged <= LOG_BYTES:
            say(name + ": " + text)
            logged += len(line)
            if logged > LOG_BYTES:
                say(name + ": (what else it says is not logged)")
        if text.strip():
            last.append(text.strip()[:QUOTED])
            del last[:-PACKAGE_LINES]


def end_group(group):
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def run(name, content, arguments, limit, environment, quoted):
    """Runs a program. Returns None if it ended well, else a sentence with its last lines, as many as `quoted`."""
    last = []
    write("script", content, 0o700)
    try:
        child = subprocess.Popen(
            [path("script")] + arguments, cwd=HERE, env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:
        first = content.split("\n", 1)[0]
        return "script %s cannot be started by its first line, %r: %s" % (name, first, error.strerror)
    reader = threading.Thread(target=copy, args=(child.stdout, name, last), daemon=True)
    reader.start()
    try:
        status = child.wait(timeout=limit)
        failure = None
        if status > 0:
            failure = "ended with exit status: %d" % status
        elif status < 0:
            failure = "was ended by signal %d" % -status
        # Processes that the script left may hold its output open.
        reader.join(LEFT_BEHIND)
        end_group(child.pid)
    except subprocess.TimeoutExpired:
        end_group(child.pid)
        child.wait()
        failure = "did not end within %d s, its timeout, and was stopped" % limit
    reader.join(LEFT_BEHIND)
    try:
        os.unlink(path("script"))
    except FileNotFoundError:
        # Scripts that run once often remove themselves.
        pass
    if failure is None:
        return None
    said = "; it said last: " + " / ".join(last[-quoted:]) if last else ""
    return "script %s %s%s" % (name, failure, said)


def attend(script, work):
    """Installs the packages of a script and runs it. Returns a sentence about its failure, or None."""
    name, packages = script["name"], script.get("packages", [])
    environment = work["environment"]
    if packages:
        manager = "%s (packages %s)" % (name, " ".join(packages))
        failure = run(
            manager, work["install_packages"], packages, work["packages_seconds"], environment, PACKAGE_LINES)
        if failure:
            return "%s; %s" % (failure, work["packages_hint"])
    return run(name, script["content"], script["arguments"], script["timeout_seconds"], environment, 1)


def run_all(work, again):
    """Runs each script that has not begun yet. Returns the failures."""
    state = read("state.json", {})
    if again:
        state = {name: end for name, end in state.items() if end["done"]}
    for script in work["scripts"]:
        name = script["name"]
        if name in state:
            continue
        # Until the script has ended, this is its end: after a power cut it is not run a second time.
        interrupted = "the machine was restarted while script %s ran, which is not run a second time" % name
        state[name] = {"done": False, "failure": interrupted}
        write("state.json", json.dumps(state))
        say("running script " + name)
        try:
            failure = attend(script, work)
        except OSError as error:
            failure = "script %s was not run: %s" % (name, error)
        os.sync()
        state[name] = {"done": failure is None, "failure": failure}
        write("state.json", json.dumps(state))
        say(failure or "script %s ended well" % name)
    return [state[script["name"]]["failure"] for script in work["scripts"] if not state[script["name"]]["done"]]


def wait_for_cloud_init(limit):
    """Returns a failure if cloud-init does not end in time. An end with errors is an end."""
    try:
        subprocess.run(
            ["cloud-init", "status", "--wait"], timeout=limit, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    except FileNotFoundError:
        say("there is no cloud-init to wait for")
    except subprocess.TimeoutExpired:
        return "the scripts were not run: cloud-init did not end within %d s" % limit
    return None


def report(urls, failures):
    level = "first_boot_failed" if failures else "first_boot"
    body = "; ".join(failures).encode("utf-8")[:REPORT_BYTES]
    # A proxy of the system refuses racks as destinations.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(TRIES if urls else 0):
        for url in urls:
            try:
                request = urllib.request.Request(url + "/" + level, data=body, method="POST")
                direct.open(request, timeout=10).close()
                return True
            except (OSError, ValueError, http.client.HTTPException) as error:
                say("reporting to %s: %s" % (url.rsplit("/report/", 1)[0], error))
        time.sleep(PAUSE)
    return False


def main():
    lock = open(path("lock"), "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit("another run of this program is not over yet")
    work = read("work.json", None)
    late = wait_for_cloud_init(work["cloud_init_seconds"])
    # After a late cloud-init nothing has run: the next boot runs the scripts.
    failures = [late] if late else run_all(work, "--again" in sys.argv[1:])
    # Reporting may take an hour. Who mended the system meanwhile need not wait for it.
    lock.close()
    reported = report(work["report"], failures)
    sys.exit(1 if failures or not reported else 0)


main()
