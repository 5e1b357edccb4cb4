resource "basalt_machine" "this" {
  for_each = var.machines

  name      = each.key
  zone      = var.zone
  pool      = var.pool
  boot_macs = [provider::basalt::mac_normalize(each.value.mac)]
  bmc = {
    driver              = "ipmi"
    address             = each.value.bmc
    username            = "admin"
    password_wo         = var.bmc_password
    password_wo_version = var.bmc_password_version
  }
}

resource "basalt_deployment" "this" {
  for_each = var.machines

  name                = each.key
  machine             = basalt_machine.this[each.key].name
  image               = var.image
  user_data           = var.user_data
  deletion_protection = var.protected
  network = {
    interfaces = {
      eth0 = { addressing = "auto", subnet = var.subnet }
    }
  }
}

# A pipeline is to fail where a system does not run in time. This fails, and not the deployment, which Terraform would replace.
resource "basalt_wait" "this" {
  for_each = var.machines

  kind    = "Deployment"
  name    = basalt_deployment.this[each.key].name
  timeout = "5m"
}
