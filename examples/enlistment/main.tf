# Undeclared machines: where they are inspected, and what is made of them.

resource "basalt_fabric" "hall" {
  name = "hall"
}

resource "basalt_zone" "row_1" {
  name = "row-1"
}

resource "basalt_zone" "row_2" {
  name = "row-2"
}

# Here a new server is inspected and becomes a Machine by itself.
resource "basalt_vlan" "intake" {
  fabric = basalt_fabric.hall.name
  vid    = 7
  enlist = "create"
  dhcp = {
    enabled = true
  }
}

# Here nobody is inspected: other teams' machines boot on it.
resource "basalt_vlan" "guests" {
  fabric = basalt_fabric.hall.name
  vid    = 8
  enlist = "off"
  dhcp = {
    enabled = true
  }
}

resource "basalt_settings" "default" {
  name = "default"
  # Everywhere else: a Discovery, which a person accepts. This is the default.
  enlist = "discover"
  enlistment = {
    # Machines of one VLAN that one rack inspects at the same time.
    at_once = 8
    # Virtual machines of libvirt.
    ignore = ["52:54:00"]
    name   = "{vendor}-{serial}"
    # The first rule that holds counts, in the order of the names.
    rules = {
      "10-intake" = {
        vlan = basalt_vlan.intake.name
        zone = basalt_zone.row_1.name
        tags = ["new"]
      }
      "20-dell" = {
        vendor = "Dell*"
        zone   = basalt_zone.row_2.name
      }
      "30-row-1" = {
        # The switch at one of its interfaces, by LLDP.
        switch = "leaf-1*"
        zone   = basalt_zone.row_1.name
      }
    }
  }
}

# A Machine that is declared with the MAC that the machine booted from takes over what was found, and needs no boot for it. The Discovery ends then, so a
# configuration names the MAC and does not depend on the Discovery.
resource "basalt_machine" "web1" {
  name      = "web1"
  boot_macs = ["d4:ae:52:00:00:01"]
  zone      = basalt_zone.row_2.name
}

# What nobody has accepted yet, with the Machine that each would be.
data "basalt_discoveries" "undeclared" {
  where = { "status.sort" = "unknown_mac" }
}

output "undeclared" {
  value = { for name, it in data.basalt_discoveries.undeclared.discoveries : name => {
    machine = it.status.proposal.name
    macs    = it.status.proposal.boot_macs
    product = it.status.inventory.dmi.product
  } }
}
