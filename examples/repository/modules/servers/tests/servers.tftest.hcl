# `./ci check` runs this without any region: what a module makes of its variables.

mock_provider "basalt" {
  mock_resource "basalt_deployment" {
    defaults = {
      status = {
        address = "10.20.0.120"
      }
    }
  }
}

variables {
  zone         = "staging"
  pool         = "staging"
  subnet       = "staging"
  image        = "debian-12"
  bmc_password = "of no account"

  machines = {
    web-1 = { mac = "52-54-00-20-00-01", bmc = "10.20.0.101" }
    web-2 = { mac = "5254.0020.0002", bmc = "10.20.0.102" }
  }
}

run "a_mac_is_read_in_any_spelling" {
  command = plan

  assert {
    condition     = flatten(values(basalt_machine.this)[*].boot_macs) == ["52:54:00:20:00:01", "52:54:00:20:00:02"]
    error_message = "The machines boot from ${jsonencode(values(basalt_machine.this)[*].boot_macs)}."
  }
}

run "each_machine_has_a_system" {
  assert {
    condition     = output.addresses == { web-1 = "10.20.0.120", web-2 = "10.20.0.120" }
    error_message = "The systems are at ${jsonencode(output.addresses)}."
  }
}

run "what_is_protected_says_so" {
  command = plan

  variables {
    protected = true
  }

  assert {
    condition     = alltrue([for system in basalt_deployment.this : system.deletion_protection])
    error_message = "A system of production can be destroyed by a plan."
  }
}
