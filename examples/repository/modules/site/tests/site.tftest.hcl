# `./ci check` runs this without any region: what a module makes of its variables.

# A mock makes up what the region would choose; the rest of the module needs a name that a VLAN can have.
mock_provider "basalt" {
  mock_resource "basalt_vlan" {
    defaults = {
      name = "staging.0"
    }
  }
}

variables {
  name     = "staging"
  cidr     = "10.20.0.0/24"
  dynamic  = ["10.20.0.150", "10.20.0.199"]
  reserved = ["10.20.0.100", "10.20.0.119"]
}

run "the_router_has_the_first_address" {
  command = plan

  assert {
    condition     = basalt_subnet.this.gateway == "10.20.0.1"
    error_message = "The gateway is ${basalt_subnet.this.gateway}."
  }

  assert {
    condition     = basalt_vlan.this.dhcp.enabled
    error_message = "Nobody gives addresses in the network."
  }
}

run "everything_has_the_name_of_the_site" {
  assert {
    condition     = [output.zone, output.pool, output.subnet] == ["staging", "staging", "staging"]
    error_message = "The site is called ${var.name}, and its parts are not."
  }
}

run "what_dhcp_gives_lies_in_the_network" {
  command = plan

  variables {
    dynamic = ["10.20.0.150", "10.21.0.199"]
  }

  expect_failures = [var.dynamic]
}
