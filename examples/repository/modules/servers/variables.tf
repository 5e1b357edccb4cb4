variable "machines" {
  description = "By name: the MAC address that it boots from, and its BMC's address."
  type        = map(object({ mac = string, bmc = string }))
}

variable "zone" {
  description = "Where they stand."
  type        = string
}

variable "pool" {
  description = "The pool that they belong to."
  type        = string
}

variable "subnet" {
  description = "The network that their systems have addresses of."
  type        = string
}

variable "image" {
  description = "What is installed."
  type        = string
}

variable "user_data" {
  description = "cloud-init user data of every system."
  type        = string
  default     = null
}

variable "protected" {
  description = "Refuse to destroy these systems, or to install them anew."
  type        = bool
  default     = false
}

variable "bmc_password" {
  description = "Password of the account `admin` on their BMCs."
  type        = string
  ephemeral   = true
}

variable "bmc_password_version" {
  description = "Rises when there is another password."
  type        = number
  default     = 1
}
