//! The real Terraform against a real region.
//!
//! Region and provider run inside the test, on a database of its own; Terraform finds the provider through
//! `TF_REATTACH_PROVIDERS`. Needs `terraform` and PostgreSQL's binaries (`make test` brings both).

mod another;
mod changes;
mod contract;
mod deployments;
mod documents;
mod errors;
mod fields;
mod functions;
mod gate;
mod generated;
mod in_place;
mod installation;
mod kills;
mod kinds;
mod lookups;
mod many;
mod moved;
mod names;
mod ownership;
mod proxies;
mod queries;
mod refusals;
mod repository;
mod requests;
mod revoked;
mod tags;
mod takeover;
mod tokens;
mod unknowns;
mod user;
mod waits;
mod ways;
mod world;

/// A network in which every object refers to another new one.
pub(crate) const NETWORK: &str = r#"
resource "basalt_zone" "row" {
  name        = "row-1"
  description = "the first row"
}
resource "basalt_pool" "web" {
  name = "web"
}
resource "basalt_fabric" "core" {
  name = "core"
}
resource "basalt_vlan" "lab" {
  fabric = basalt_fabric.core.name
  vid    = 7
  dhcp   = { enabled = true }
}
resource "basalt_subnet" "lab" {
  name        = "lab"
  vlan        = basalt_vlan.lab.name
  cidr        = "10.77.0.0/24"
  gateway     = "10.77.0.1"
  dns_servers = ["10.77.0.2", "10.77.0.3"]
}
resource "basalt_ip_range" "pool" {
  name   = "lab-pool"
  subnet = basalt_subnet.lab.name
  start  = "10.77.0.100"
  end    = "10.77.0.149"
}
resource "basalt_image" "debian" {
  name         = "debian-12"
  os           = "debian"
  release      = "bookworm"
  architecture = "amd64"
  files = {
    root_tarball = {
      sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
      size   = 0
    }
  }
}
"#;
