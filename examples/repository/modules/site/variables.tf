variable "name" {
  description = "What everything here is called."
  type        = string
}

variable "cidr" {
  description = "The network. Its first address is the router's."
  type        = string
}

variable "dynamic" {
  description = "First and last address that DHCP gives to whatever asks."
  type        = tuple([string, string])

  validation {
    condition     = alltrue([for address in var.dynamic : provider::basalt::cidr_contains(var.cidr, address)])
    error_message = "Both addresses lie in the network, ${var.cidr}."
  }
}

variable "reserved" {
  description = "First and last address that nobody is given, such as those of BMCs."
  type        = tuple([string, string])
}
