#!/bin/sh
# Installs the packages that its arguments name, by the package manager of this system.
export DEBIAN_FRONTEND=noninteractive
# needrestart would restart the service that runs the scripts.
export NEEDRESTART_SUSPEND=1
if command -v apt-get >/dev/null 2>&1; then
    # At the first boot another apt may be at work. It holds the lists only for a short time; for the database apt-get waits by itself.
    tries=0
    until apt-get -q update; do
        tries=$((tries + 1))
        [ "$tries" -lt 5 ] || break
        sleep 5
    done
    # Without the newest lists an install may still succeed.
    exec apt-get -q -y -o DPkg::Lock::Timeout=600 -o Dpkg::Options::=--force-confold install "$@"
elif command -v dnf >/dev/null 2>&1; then
    exec dnf -q -y install "$@"
fi
echo "this system has neither apt-get nor dnf: leave out packages, or put the programs into the image" >&2
exit 1
