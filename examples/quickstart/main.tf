# Two machines, one with BIOS and one with UEFI firmware, from bare metal to Debian. Everything below refers to
# something that this same apply creates.

resource "basalt_zone" "lab" {
  name        = "lab"
  description = "The rack next to the coffee machine"
}

resource "basalt_pool" "default" {
  name = "lab-pool"
}

resource "basalt_fabric" "lab" {
  name = "lab"
}

resource "basalt_vlan" "lab" {
  fabric = basalt_fabric.lab.name
  vid    = 0
  dhcp = {
    enabled = true
  }
}

resource "basalt_subnet" "lab" {
  name    = "lab"
  vlan    = basalt_vlan.lab.name
  cidr    = "10.77.0.0/24"
  gateway = "10.77.0.1"
}

resource "basalt_ip_range" "dynamic" {
  name    = "lab-dynamic"
  subnet  = basalt_subnet.lab.name
  start   = "10.77.0.150"
  end     = "10.77.0.199"
  purpose = "dynamic"
}

# The BMCs are on the same wire, and no installed system gets one of their addresses.
resource "basalt_ip_range" "bmcs" {
  name    = "lab-bmcs"
  subnet  = basalt_subnet.lab.name
  start   = "10.77.0.100"
  end     = "10.77.0.119"
  purpose = "reserved"
}

locals {
  ephemeral = jsondecode(file("${var.image_dir}/ephemeral/image.json"))
  debian    = jsondecode(file("${var.image_dir}/debian/image.json"))

  machines = {
    bios = { mac = "52:54:00:00:00:01", bmc = "10.77.0.101" }
    uefi = { mac = "52:54:00:00:00:02", bmc = "10.77.0.102" }
  }
}

resource "basalt_image" "ephemeral" {
  name         = "ephemeral"
  os           = local.ephemeral.os
  release      = local.ephemeral.release
  architecture = local.ephemeral.architecture
  purpose      = "ephemeral"
  files        = { for role, f in local.ephemeral.files : role => { sha256 = f.sha256, size = f.size } }
}

resource "basalt_image" "debian" {
  name         = "debian-12"
  os           = local.debian.os
  release      = local.debian.release
  architecture = local.debian.architecture
  files        = { for role, f in local.debian.files : role => { sha256 = f.sha256, size = f.size } }
}

resource "basalt_machine" "this" {
  for_each = local.machines

  name           = each.key
  zone           = basalt_zone.lab.name
  pool           = basalt_pool.default.name
  boot_macs      = [each.value.mac]
  kernel_options = var.kernel_options
  bmc = {
    driver      = "ipmi"
    address     = each.value.bmc
    username    = "admin"
    password_wo = var.bmc_password
    options     = { cipher_suite = 3 }

    # It is in no state: raise this with another password.
    password_wo_version = 1
  }

  # A machine is commissioned in the ephemeral environment, over this network.
  depends_on = [basalt_image.ephemeral, basalt_ip_range.dynamic, basalt_ip_range.bmcs]
}

resource "basalt_deployment" "this" {
  for_each = local.machines

  name           = each.key
  machine        = basalt_machine.this[each.key].name
  image          = basalt_image.debian.name
  hostname       = "${each.key}-1"
  kernel_options = var.kernel_options
  ssh_keys       = [var.ssh_key]
  user_data      = <<-EOT
    #cloud-config
    write_files:
      - path: /etc/motd
        content: "Installed by Basalt\n"
  EOT
  # An address of the subnet for good: the system keeps it when nobody serves DHCP.
  network = {
    interfaces = {
      eth0 = { addressing = "auto", subnet = basalt_subnet.lab.name }
    }
  }
  readiness = {
    check = "cloud_init"
  }
}

# A deployment that is not ready in time, or that waits for a person, ends the apply with a warning: an error would have Terraform replace it.
# This fails in its place, and the next apply waits again.
resource "basalt_wait" "this" {
  for_each = local.machines

  kind    = "Deployment"
  name    = basalt_deployment.this[each.key].name
  timeout = "5m"
}
