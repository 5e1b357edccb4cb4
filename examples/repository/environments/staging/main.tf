module "site" {
  source = "../../modules/site"

  name     = "staging"
  cidr     = "10.20.0.0/24"
  dynamic  = ["10.20.0.150", "10.20.0.199"]
  reserved = ["10.20.0.100", "10.20.0.119"]
}

# Made once, by `basalt image push`.
data "basalt_image" "debian" {
  name = "debian-12"
}

module "web" {
  source = "../../modules/servers"

  zone         = module.site.zone
  pool         = module.site.pool
  subnet       = module.site.subnet
  image        = data.basalt_image.debian.name
  bmc_password = var.bmc_password

  machines = {
    staging-web-1 = { mac = "52:54:00:20:00:01", bmc = "10.20.0.101" }
    staging-web-2 = { mac = "52:54:00:20:00:02", bmc = "10.20.0.102" }
  }
}
