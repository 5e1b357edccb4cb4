import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hclOf } from '../../src/pages/objects/hcl';

test('an object is a resource as the provider has it, with the block that imports it', () => {
  const subnet = {
    kind: 'Subnet',
    metadata: { name: 'lab', labels: { row: '7', 'example.com/rack': 'a' } },
    spec: { vlan: 'lab.10', cidr: '10.0.0.0/24', managed: true, gateway: null, dns_servers: ['10.0.0.2', '10.0.0.3'], boot: { mode: 'dhcp' }, dhcp_options: { '150': '10.0.0.5' } },
  };
  assert.equal(
    hclOf(subnet),
    `import {
  to = basalt_subnet.lab
  id = "lab"
}

resource "basalt_subnet" "lab" {
  name        = "lab"
  vlan        = "lab.10"
  cidr        = "10.0.0.0/24"
  managed     = true
  dns_servers = ["10.0.0.2", "10.0.0.3"]
  labels = {
    row                = "7"
    "example.com/rack" = "a"
  }
  boot = {
    mode = "dhcp"
  }
  dhcp_options = {
    "150" = "10.0.0.5"
  }
}
`,
  );
});

test('a secret becomes a variable that no state keeps', () => {
  const machine = {
    kind: 'Machine',
    metadata: { name: '7-up.rack' },
    spec: { bmc: { driver: 'ipmi', password: { set: true, revision: 4 } } },
  };
  const hcl = hclOf(machine);
  assert.match(hcl, /^resource "basalt_machine" "_7-up_rack" \{$/m);
  assert.match(hcl, /^ {4}password_wo +\= var\._7_up_rack_bmc_password$/m);
  assert.match(hcl, /^ {4}password_wo_version = 4$/m);
  assert.match(hcl, /^variable "_7_up_rack_bmc_password" \{\n {2}type      = string\n {2}ephemeral = true\n\}$/m);
});

test('texts stay what they are', () => {
  const of = (words: string) => hclOf({ kind: 'DnsRecord', metadata: { name: 'a' }, spec: { data: words } }).split('\n').find((line) => line.trim().startsWith('data'))?.trim();
  assert.equal(of('a "b" \\ ${c} %{d} $e'), 'data = "a \\"b\\" \\\\ $${c} %%{d} $e"');
  assert.equal(of('\b\f\t'), 'data = "\\u0008\\u000c\\t"');
  assert.equal(of('\\b'), 'data = "\\\\b"');
});

test('a text that holds the marker of a heredoc is quoted', () => {
  const of = (words: string) => hclOf({ kind: 'Script', metadata: { name: 'a' }, spec: { source: words } }).split('\n').find((line) => line.trim().startsWith('source'))?.trim();
  assert.equal(of('cat <<EOT\na\nEOT\necho\n'), 'source = "cat <<EOT\\na\\nEOT\\necho\\n"');
  assert.equal(of('a\n\t EOT \nb\n'), 'source = "a\\n\\t EOT \\nb\\n"');
  assert.equal(of('EOT\n'), 'source = "EOT\\n"');
  assert.equal(of('a\r\nb\r\n'), 'source = "a\\r\\nb\\r\\n"');
  assert.equal(of('a\u0085EOT\n'), 'source = "a\u0085EOT\\n"');
  assert.deepEqual([of('EOTs\n'), of('\tan EOT\n')], ['source = <<EOT', 'source = <<EOT']);
});

test('texts of a list are quoted, and so is a key that is a word of the language', () => {
  const hcl = hclOf({ kind: 'Deployment', metadata: { name: 'a', labels: { for: 'x', format: 'y' } }, spec: { ssh_keys: ['ssh-ed25519 A me\n', 'b'] } });
  assert.match(hcl, /^ {2}ssh_keys = \["ssh-ed25519 A me\\n", "b"\]$/m);
  assert.match(hcl, /^ {4}"for" {2}= "x"\n {4}format = "y"$/m);
});

test('a script keeps its lines', () => {
  const hcl = hclOf({ kind: 'PackageRepository', metadata: { name: 'a' }, spec: { key: '#!/bin/sh\necho ${HOME}\n', parts: [{ text: 'x' }, 1] } });
  assert.match(hcl, /^resource "basalt_package_repository"/m);
  assert.match(hcl, /^ {2}key = <<EOT\n#!\/bin\/sh\necho \$\$\{HOME\}\nEOT\n/m);
  assert.match(hcl, /^ {2}parts = \[\n {4}\{\n {6}text = "x"\n {4}\},\n {4}1,\n {2}\]$/m);
});
