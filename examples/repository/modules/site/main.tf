resource "basalt_zone" "this" {
  name = var.name
}

resource "basalt_pool" "this" {
  name = var.name
}

resource "basalt_fabric" "this" {
  name = var.name
}

resource "basalt_vlan" "this" {
  fabric = basalt_fabric.this.name
  vid    = 0
  dhcp = {
    enabled = true
  }
}

resource "basalt_subnet" "this" {
  name    = var.name
  vlan    = basalt_vlan.this.name
  cidr    = var.cidr
  gateway = cidrhost(var.cidr, 1)
}

resource "basalt_ip_range" "dynamic" {
  name    = "${var.name}-dynamic"
  subnet  = basalt_subnet.this.name
  start   = var.dynamic[0]
  end     = var.dynamic[1]
  purpose = "dynamic"
}

resource "basalt_ip_range" "reserved" {
  name    = "${var.name}-reserved"
  subnet  = basalt_subnet.this.name
  start   = var.reserved[0]
  end     = var.reserved[1]
  purpose = "reserved"
}
