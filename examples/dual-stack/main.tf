# A system with addresses of both families: IPv4 and IPv6 on a bond, a second IPv6 network on a VLAN above it.

resource "basalt_fabric" "site" {
  name = "site"
}

resource "basalt_vlan" "front" {
  fabric = basalt_fabric.site.name
  vid    = 0
  dhcp = {
    enabled = true
  }
}

resource "basalt_vlan" "storage" {
  fabric = basalt_fabric.site.name
  vid    = 7
}

resource "basalt_subnet" "front4" {
  name        = "front-ipv4"
  vlan        = basalt_vlan.front.name
  cidr        = "10.78.0.0/24"
  gateway     = "10.78.0.1"
  dns_servers = ["10.78.0.53"]
}

resource "basalt_subnet" "front6" {
  name        = "front-ipv6"
  vlan        = basalt_vlan.front.name
  cidr        = "2001:db8:78::/64"
  gateway     = "2001:db8:78::1"
  dns_servers = ["2001:db8:78::53"]
}

resource "basalt_subnet" "storage6" {
  name = "storage-ipv6"
  vlan = basalt_vlan.storage.name
  cidr = "2001:db8:7::/64"
}

resource "basalt_image" "debian" {
  name         = "debian-dual-stack"
  os           = "debian"
  release      = "12"
  architecture = "amd64"
  files = {
    root_tarball = { sha256 = "3a7bd3e2360a3d29eea436fcfb7e44c735d117c42d1c1835420b6b9942dd4f1b", size = 1 }
  }
}

resource "basalt_machine" "web" {
  name      = "web-1"
  boot_macs = ["52:54:00:78:00:01"]
}

resource "basalt_deployment" "web" {
  name    = "web-1"
  machine = basalt_machine.web.name
  image   = basalt_image.debian.name

  network = {
    interfaces = {
      eno1 = { addressing = "link_up" }
      eno2 = { addressing = "link_up" }
    }
    bonds = {
      bond0 = {
        members     = ["eno1", "eno2"]
        primary     = "eno1"
        up_delay_ms = 200
        subnet      = basalt_subnet.front4.name
        addresses = {
          # A change of one of these leaves the others as they are.
          ipv6    = { subnet = basalt_subnet.front6.name }
          service = { addressing = "static", subnet = basalt_subnet.front6.name, address = "2001:db8:78::80" }
        }
      }
    }
    vlans = {
      "bond0.7" = { parent = "bond0", vid = 7, subnet = basalt_subnet.storage6.name, accept_ra = false }
    }
  }
}

output "address" {
  value = basalt_deployment.web.status.addresses["bond0"]
}

output "ipv6_address" {
  value = basalt_deployment.web.status.further_addresses["bond0/ipv6"]
}
