#!/usr/bin/env python3
"""Dynamic inventory of a Basalt region for Ansible: its machines, by zone, pool, tag and phase.

    ansible-inventory -i basalt_inventory.py --graph
    ansible -i basalt_inventory.py zone_row_1 -m ping

The region is told by the environment, as for every tool of Basalt:

    BASALT_ENDPOINT      http://127.0.0.1:5240, https://HOST:5240 or unix:/PATH/api.sock
    BASALT_TOKEN         the API token (a viewer's is enough), or
    BASALT_TOKEN_FILE    the file that holds it
    BASALT_CA_FILE       certificates that may have signed the region's, where the system does not trust it

Python 3.8 or later and nothing else.
"""

import argparse
import http.client
import json
import os
import re
import socket
import ssl
import sys
import urllib.parse

# All that an inventory needs, and nothing of what makes machines long: a thousand fit into one answer.
FIELDS = ",".join([
    "metadata.name",
    "metadata.labels",
    "spec.architecture",
    "spec.zone",
    "spec.pool",
    "spec.description",
    "status.tags",
    "status.phase",
    "status.deployment",
    "status.addresses",
])
PAGE = 1000
TIMEOUT = 30


class Failure(Exception):
    """What stops the inventory, in words for its user."""


class UnixConnection(http.client.HTTPConnection):
    """HTTP over the region's own socket."""

    def __init__(self, path):
        super().__init__("region", timeout=TIMEOUT)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def token():
    """The API token, if there is one."""
    if os.environ.get("BASALT_TOKEN"):
        return os.environ["BASALT_TOKEN"]
    path = os.environ.get("BASALT_TOKEN_FILE")
    if not path:
        return None
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def connection():
    """A connection to the region."""
    endpoint = os.environ.get("BASALT_ENDPOINT")
    if not endpoint:
        raise Failure("BASALT_ENDPOINT is not set: say where the region is, like http://127.0.0.1:5240")
    if endpoint.startswith("unix:"):
        return UnixConnection(endpoint[len("unix:"):])
    url = urllib.parse.urlsplit(endpoint)
    if url.scheme == "https":
        context = ssl.create_default_context(cafile=os.environ.get("BASALT_CA_FILE"))
        return http.client.HTTPSConnection(url.hostname, url.port or 5240, timeout=TIMEOUT, context=context)
    if url.scheme == "http" and url.hostname in ("127.0.0.1", "::1", "localhost"):
        return http.client.HTTPConnection(url.hostname, url.port or 5240, timeout=TIMEOUT)
    raise Failure(f"BASALT_ENDPOINT is {endpoint}: a token is only sent over https, to this host, or to unix:/PATH")


def get(region, path):
    """One answer of the region."""
    headers = {"Accept": "application/json"}
    bearer = token()
    if bearer:
        headers["Authorization"] = f"Bearer {bearer}"
    region.request("GET", path, headers=headers)
    response = region.getresponse()
    body = response.read()
    if response.status != 200:
        try:
            problem = json.loads(body)
            said = problem.get("detail") or problem.get("title")
        except ValueError:
            said = response.reason
        raise Failure(f"the region answers {response.status} to GET {path}: {said}")
    return json.loads(body)


def machines():
    """Every machine that the token may see; one call for each thousand."""
    region = connection()
    after = None
    while True:
        query = {"fields": FIELDS, "limit": PAGE}
        if after:
            query["continue"] = after
        page = get(region, "/api/v1/machines?" + urllib.parse.urlencode(query))
        yield from page["items"]
        after = page.get("continue")
        if not after:
            return


def group(kind, name):
    """A name that Ansible takes for a group's."""
    return kind + "_" + re.sub(r"[^A-Za-z0-9_]", "_", name)


def variables(machine):
    """What playbooks see of a machine."""
    metadata, spec, status = (machine.get(part, {}) for part in ("metadata", "spec", "status"))
    addresses = status.get("addresses", {})
    found = {
        "basalt_zone": spec.get("zone") or "default",
        "basalt_pool": spec.get("pool") or "default",
        "basalt_architecture": spec.get("architecture") or "amd64",
        "basalt_tags": status.get("tags", []),
        "basalt_labels": metadata.get("labels", {}),
        "basalt_phase": status.get("phase", "New"),
        "basalt_deployment": status.get("deployment"),
        "basalt_addresses": addresses,
        "basalt_description": spec.get("description"),
    }
    if addresses:
        # The first interface's own address: further ones are called INTERFACE/NAME, which comes after it.
        found["ansible_host"] = addresses[sorted(addresses)[0]]
    return found


def groups_of(found):
    """The groups that a machine with these variables is in."""
    names = [
        group("zone", found["basalt_zone"]),
        group("pool", found["basalt_pool"]),
        group("phase", found["basalt_phase"].lower()),
    ]
    names.extend(group("tag", tag) for tag in found["basalt_tags"])
    if found["basalt_deployment"]:
        names.append("deployed")
    return names


def inventory():
    """Everything in one object: with _meta, Ansible asks for no host alone."""
    result = {"_meta": {"hostvars": {}}}
    for machine in machines():
        name = machine["metadata"]["name"]
        found = variables(machine)
        result["_meta"]["hostvars"][name] = found
        for group_name in groups_of(found):
            result.setdefault(group_name, {"hosts": []})["hosts"].append(name)
    return result


def main():
    parser = argparse.ArgumentParser(description="Machines of a Basalt region as an Ansible inventory.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--list", action="store_true", help="everything")
    what.add_argument("--host", metavar="NAME", help="the variables of one machine")
    arguments = parser.parse_args()
    try:
        result = inventory()
    except (Failure, OSError, http.client.HTTPException) as failure:
        sys.exit(f"basalt_inventory: {failure}")
    if arguments.host:
        result = result["_meta"]["hostvars"].get(arguments.host, {})
    json.dump(result, sys.stdout, indent=2, sort_keys=True)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
