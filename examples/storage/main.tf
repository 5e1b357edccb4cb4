# Systems on more than one flat disk. Nothing of this is decided on the machine: what does not fit together is refused by `terraform plan`.

# Two disks that mirror each other, whichever they are: the machine boots when one of them dies.
resource "basalt_deployment" "mirrored" {
  name     = "mirrored"
  image    = "debian-12"
  selector = { pool = "web" }
  storage  = { layout = "raid1" }
}

# A volume group on one disk, of which 20 GiB are used now.
resource "basalt_deployment" "volumes" {
  name    = "volumes"
  image   = "debian-12"
  machine = "web1"
  storage = { layout = "lvm", disk = "wwn-0x5000c500a1b2c3d4", root_size = "20GiB" }
}

# All of it: a mirrored root, and XFS on a volume of a RAID of four large disks with a fifth to spare.
resource "basalt_deployment" "database" {
  name    = "database"
  image   = "debian-12"
  machine = "db1"
  wipe    = "always"
  storage = {
    layout = "custom"
    disks = merge(
      { for name in ["left", "right"] : name => { id = "SSD-${name}" } },
      { for n in range(5) : "bulk${n}" => { min_size = "4TB" } },
    )
    partitions = {
      left-root  = { disk = "left", size = "40GiB" }
      right-root = { disk = "right", size = "40GiB" }
      left-swap  = { disk = "left", size = "8GiB" }
    }
    raids = {
      system = { level = "raid1", members = ["left-root", "right-root"] }
      bulk   = { level = "raid6", members = [for n in range(4) : "bulk${n}"], spares = ["bulk4"] }
    }
    volume_groups = { data = { members = ["bulk"] } }
    volumes = {
      postgresql = { volume_group = "data", size = "2TiB" }
      backup     = { volume_group = "data" }
    }
    filesystems = {
      root       = { device = "system", mount = "/" }
      swap       = { device = "left-swap", type = "swap" }
      postgresql = { device = "postgresql", type = "xfs", mount = "/var/lib/postgresql", options = "noatime" }
      backup     = { device = "backup", type = "xfs", mount = "/srv/backup", options = "noatime,nofail" }
    }
  }
}
