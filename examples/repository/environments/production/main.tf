module "site" {
  source = "../../modules/site"

  name     = "production"
  cidr     = "10.30.0.0/24"
  dynamic  = ["10.30.0.150", "10.30.0.199"]
  reserved = ["10.30.0.100", "10.30.0.119"]
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
  protected    = true

  machines = {
    production-web-1 = { mac = "52:54:00:30:00:01", bmc = "10.30.0.101" }
    production-web-2 = { mac = "52:54:00:30:00:02", bmc = "10.30.0.102" }
    production-web-3 = { mac = "52:54:00:30:00:03", bmc = "10.30.0.103" }
    production-web-4 = { mac = "52:54:00:30:00:04", bmc = "10.30.0.104" }
  }
}
