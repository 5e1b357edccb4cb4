# Names, time, logs and packages for the machines of a network: a domain with records, names of addresses, a domain of other servers, NTP
# servers, the proxy of racks, a receiver of logs, and repositories of packages.

variable "tsig_secret" {
  description = "The secret of the key basalt.example.com, in base64."
  type        = string
  sensitive   = true
}

resource "basalt_fabric" "hall" {
  name = "hall"
}

resource "basalt_vlan" "servers" {
  fabric = basalt_fabric.hall.name
  vid    = 0
  dhcp = {
    enabled = true
  }
}

# The domain of everything that names none: machines, devices and kept addresses have their names here.
resource "basalt_domain" "hall" {
  name = "hall.example.com"
  ttl  = 60
  # A server of the company holds a copy. It has the same key: `tsig-keygen -a hmac-sha256 basalt.example.com`.
  secondaries = {
    ns1 = {
      address  = "192.0.2.61"
      key_name = "basalt.example.com"
      key      = var.tsig_secret
    }
  }
}

# The company's own names are asked of its servers. Answers with private addresses are taken from these alone.
resource "basalt_domain" "company" {
  name          = "corp.example.com"
  authoritative = false
  forward_to    = ["192.0.2.53", "192.0.2.54"]
}

resource "basalt_settings" "default" {
  name           = "default"
  default_domain = basalt_domain.hall.name
  upstream_dns   = ["192.0.2.1"]
  dns_clients    = ["192.0.2.64/26"]
  ntp_servers    = ["ntp1.example.com", "ntp2.example.com", "ntp3.example.com"]
  # Racks with Squid installed serve a caching proxy, and ask this one.
  proxy = {
    upstream = "http://proxy.corp.example.com:3128"
  }
  # Racks take the logs of machines, and the region sends a copy of all lines to this receiver.
  remote_syslog = {
    siem = {
      address = "logs.corp.example.com:6514"
    }
  }
}

# Without dns_servers and ntp_servers, DHCP and netplan name the racks. The racks that stand here are servers.rack.basalt.internal.
resource "basalt_subnet" "servers" {
  name           = "servers"
  vlan           = basalt_vlan.servers.name
  cidr           = "10.79.0.0/26"
  gateway        = "10.79.0.1"
  search_domains = [basalt_domain.hall.name]
  # 0.79.10.in-addr.arpa, with an alias for each address to 0-26.0.79.10.in-addr.arpa.
  rdns = "rfc2317"
}

# ip-10-79-0-40.hall.example.com, and so on.
resource "basalt_ip_range" "leases" {
  name    = "leases"
  subnet  = basalt_subnet.servers.name
  start   = "10.79.0.40"
  end     = "10.79.0.62"
  purpose = "dynamic"
}

resource "basalt_device" "switch" {
  name      = "switch"
  addresses = ["10.79.0.2"]
}

resource "basalt_dns_record" "web" {
  name       = "web"
  domain     = basalt_domain.hall.name
  owner_name = "www"
  type       = "CNAME"
  data       = "switch.${basalt_domain.hall.name}."
}

resource "basalt_dns_record" "ldap" {
  name       = "ldap"
  domain     = basalt_domain.hall.name
  owner_name = "_ldap._tcp"
  type       = "SRV"
  data       = "0 5 389 ldap.corp.example.com."
  ttl        = 3600
}

# Written to systems with apt when they are installed, with the suite of their image.
resource "basalt_package_repository" "tools" {
  name       = "tools"
  url        = "http://packages.corp.example.com/debian"
  components = ["main"]
}

# For systems with dnf, which fill in $releasever and $basearch. Without a key, they trust the keys of their image.
resource "basalt_package_repository" "tools_el" {
  name = "tools-el"
  type = "dnf"
  url  = "http://packages.corp.example.com/el/$releasever/$basearch"
}
